"""What the manager of transactions can be asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from delivery.errors import InvalidRequest
from delivery.messaging.transactions import Snapshot
from delivery.transactions.limits import (
    CHANGE_BYTES_MAX,
    CHANGES_MAX,
    TIMEOUT_MS,
    TIMEOUT_MS_MAX,
)

Standing = Literal["in_progress", "committed", "aborted", "invalid"]
"""How a transaction stands; see `Book.standing`."""


class Begin(msgspec.Struct, frozen=True):
    """A new transaction, answered with Begun."""

    timeout_ms: int


class Begun(msgspec.Struct, frozen=True):
    """A transaction that has begun."""

    pointer: int
    deadline_ms: int
    """From then on it is invalid."""
    snapshot: Snapshot


class Commit(msgspec.Struct, frozen=True):
    """Make what a transaction did visible; `changes` are digests of what it changed."""

    pointer: int
    changes: Collection[int] = ()


class Abort(msgspec.Struct, frozen=True):
    """End a transaction that has undone what it did."""

    pointer: int


class Invalidate(msgspec.Struct, frozen=True):
    """End a transaction that could not undo what it did: nobody may ever see it."""

    pointer: int


class Expire(msgspec.Struct, frozen=True):
    """Make those invalid whose time is over."""


class Prune(msgspec.Struct, frozen=True):
    """Forget invalid transactions that began before a time in ms, answered with how many there were."""

    before_ms: int


class Look(msgspec.Struct, frozen=True):
    """Answered with the Snapshot of one who reads and begins nothing."""


class Ask(msgspec.Struct, frozen=True):
    """How the transaction stands, answered with Standing."""

    pointer: int


class MayWrite(msgspec.Struct, frozen=True):
    """Which of these transactions may still write: answered with how each stands, None where that is not known.

    From the manager's memory, as of now: what is kept of them does not matter.
    """

    pointers: Sequence[int]


class Survey(msgspec.Struct, frozen=True):
    """Answered with all that are Listed; from memory as well."""


class Listed(msgspec.Struct, frozen=True):
    """A transaction that is in progress or invalid."""

    pointer: int
    standing: Standing
    deadline_ms: int
    """0 for an invalid one."""


Asked = Begin | Commit | Abort | Invalidate | Expire | Prune | Look | Ask | MayWrite | Survey
Answer = Begun | Snapshot | list[Listed] | list[Standing | None] | int | str | None


def check_timeout(timeout_ms: int | None) -> Begin:
    """What begins a transaction of so many ms, None for the usual time. Raises InvalidRequest."""
    wanted = TIMEOUT_MS if timeout_ms is None else timeout_ms
    if not 1 <= wanted <= TIMEOUT_MS_MAX:
        raise InvalidRequest(f"a transaction takes up to {TIMEOUT_MS_MAX // 1000} seconds, not {wanted / 1000:g}")
    return Begin(wanted)


def check_pointer(pointer: int | None) -> int:
    """`pointer` if it may be a transaction's. Raises InvalidRequest."""
    if pointer is None or not 0 < pointer < 2**63:
        raise InvalidRequest(f"{str(pointer)[:40]} is no write pointer of a transaction")
    return pointer


def digests(changes: Iterable[bytes]) -> frozenset[int]:
    """The digests of the keys that a transaction changed. Raises InvalidRequest.

    Two keys with the same one, which is about as likely as a failing disk, are a conflict where there is none.
    """
    keys = list(changes)
    if len(keys) > CHANGES_MAX:
        raise InvalidRequest(f"a transaction changes at most {CHANGES_MAX} keys, not {len(keys)}")
    if any(len(key) > CHANGE_BYTES_MAX for key in keys):
        raise InvalidRequest(f"a key that a transaction changes has at most {CHANGE_BYTES_MAX} bytes")
    return frozenset(int.from_bytes(blake2b(key, digest_size=7).digest()) for key in keys)
