"""What transactions leave in the log of a topic's partition, byte for byte. All numbers are big-endian.

A message that was published in a transaction is an ordinary message with one header:

    hoot.tx          i64 write pointer

Three more kinds stand between the messages, each alone in its batches, told by the topic of the batch. They begin with
`hoot.` (`model.ASIDE`), so that no subscription or scanner gets them:

    hoot.stored      a body that is not visible yet; header hoot.tx
    hoot.marker      makes visible all bodies that were stored under its pointer before it; header hoot.tx;
                     body: per stored batch i64 number of its first message, i32 how many messages. Its batch covers
                     an id for itself, and one behind that for each of these messages
    hoot.rollback    the messages and markers under a pointer, from one number to another, were rolled back;
                     body: i64 pointer, i64 first number, i64 last number

A marker names the bodies itself: whoever reads on needs no index of them, and what is stored under the same pointer
later cannot slip in. Ids of bodies are from the partition's own sequence.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from delivery.batch import Header, Row, is_aside, open_batch
from delivery.batch.layout import FLAGS_AT, HEADERS
from delivery.errors import CorruptRecord
from delivery.model import ASIDE, encode_headers, tolerant_headers

HEADER: Final = "hoot.tx"
STORED: Final = f"{ASIDE}stored"
MARKER: Final = f"{ASIDE}marker"
ROLLBACK: Final = f"{ASIDE}rollback"

_NAME: Final = HEADER.encode()
_POINTER: Final = struct.Struct(">q")
_CARRIED: Final = re.compile(re.escape(encode_headers({HEADER: bytes(8)})[:-8]) + b"(.{8})", re.DOTALL)
"""The header in a header block."""
_RANGE: Final = struct.Struct(">qi")
_ROLLBACK: Final = struct.Struct(">qqq")


class Range(NamedTuple):
    """Numbers of stored bodies, one after another."""

    first: int
    messages: int

    @property
    def last(self) -> int:
        """The last number."""
        return self.first + self.messages - 1


class Rollback(NamedTuple):
    """What a client took back."""

    pointer: int
    first: int
    last: int


def header(pointer: int) -> dict[str, bytes]:
    """What a message of a transaction has among its headers."""
    return {HEADER: _POINTER.pack(pointer)}


def may_be_of_transactions(header: Header, data: bytes, at: int = 0) -> bool:
    """Whether any message of the batch that begins at `at` can be of a transaction, told without opening it."""
    named = header.flags & HEADERS and data.find(_NAME, at, at + header.length) >= 0
    return bool(named) and not is_aside(header)


def pointers_in(data: bytes) -> frozenset[int]:
    """The write pointers of the transactions whose messages a batch holds. No Python runs for a message.

    Raises CorruptRecord for a batch that would be refused anyway; others may be none and not be noticed here.
    """
    if len(data) <= FLAGS_AT or not data[FLAGS_AT] & HEADERS or data.find(_NAME) < 0:
        return frozenset()
    return frozenset(_POINTER.unpack(found)[0] for found in set(_CARRIED.findall(open_batch(data).block_area)))


def published(bodies: Iterable[bytes], pointer: int | None) -> list[Row]:
    """Messages, of a transaction or of none."""
    block = b"" if pointer is None else _block(pointer)
    return [(body, None, "", block) for body in bodies]


def stored(bodies: Iterable[bytes], pointer: int) -> list[Row]:
    """Bodies that become visible with a marker."""
    block = _block(pointer)
    return [(body, None, STORED, block) for body in bodies]


def marker(pointer: int, group: Sequence[Range]) -> Row:
    """What makes a group visible."""
    return b"".join(_RANGE.pack(*one) for one in group), None, MARKER, _block(pointer)


def rolled_back(what: Rollback) -> Row:
    """The note that a range was taken back."""
    return _ROLLBACK.pack(*what), None, ROLLBACK, b""


def read_marker(body: bytes) -> list[Range]:
    """The group of a marker. Raises CorruptRecord."""
    if len(body) % _RANGE.size:
        raise CorruptRecord(f"a marker of {len(body)} bytes is none")
    return [Range(*fields) for fields in _RANGE.iter_unpack(body)]


def read_rollback(body: bytes) -> Rollback:
    """What a note says. Raises CorruptRecord."""
    try:
        return Rollback(*_ROLLBACK.unpack(body))
    except struct.error as error:
        raise CorruptRecord(f"a note of a rollback of {len(body)} bytes is none") from error


@lru_cache(maxsize=4096)
def pointer_in(block: bytes) -> int | None:
    """The write pointer in a message's header block, None for a message of no transaction.

    The header of another program under this name, which cannot be a pointer, counts for nothing.
    """
    value = tolerant_headers(block).get(HEADER)
    return _POINTER.unpack(value)[0] if value is not None and len(value) == _POINTER.size else None


def _block(pointer: int) -> bytes:
    return encode_headers(header(pointer))
