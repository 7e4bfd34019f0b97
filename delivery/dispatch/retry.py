"""What follows when a message was not handled: how long to wait, and what is counted. Plain decisions.

This is the policy for the first message of a partition that waits for it (`order="partition"`): a failure ends the run,
everything behind the message waits, and the next run begins with it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from delivery.errors import ProtocolError
from delivery.metastore.managers.records import Attempts
from delivery.metastore.policy import RetryPolicy

ERROR_TEXT_MAX: Final = 200
"""Of an error in a state: enough to know it again, and little in ZooKeeper."""
ISOLATE_AFTER: Final = 3
"""Connections that broke at the same position before messages are delivered one by one: most have other reasons."""
_GROWING: Final = 64
"""Pauses grow no further; the longest was reached long before, or the factor is next to one."""

Draw = Callable[[float, float], float]
"""A number between two, as random.uniform."""


class Kind(enum.IntEnum):
    """Why a message was not handled (idl/subscriber.thrift)."""

    RAISED = 0
    RETRY = 1
    REJECTED = 2
    UNREADABLE = 3
    HELD = 4


class Failure(Protocol):
    """A Failure of idl/subscriber.thrift."""

    id: int
    last: int
    kind: int
    afterMs: int | None  # noqa: N815 - the IDL's
    error: str | None
    key: bytes | None


class Failed(msgspec.Struct, frozen=True):
    """A Failure that was looked at: `id` to `last` were not handled, everything before them was."""

    id: int
    last: int
    kind: Kind
    after_ms: int | None = None
    error: str = ""
    key: bytes | None = None


def checked(failure: Failure, handled: int, last_id: int) -> Failed:
    """A failure behind `handled` in a push up to `last_id`. Raises ProtocolError for what cannot be."""
    error = (failure.error or "")[:ERROR_TEXT_MAX]
    try:
        failed = Failed(failure.id, failure.last, Kind(failure.kind), failure.afterMs, error, failure.key)
        if handled < failed.id <= failed.last <= last_id and (failed.after_ms or 0) >= 0:
            return failed
    except (TypeError, ValueError):  # fields that were not sent, or a kind of a later version
        pass
    raise ProtocolError(f"a listener says that {failure} of a push up to {last_id} failed behind {handled}")


def failed_in(failures: Sequence[Failure] | None, handled: int, last_id: int) -> Failed:
    """What ended a run, by a reply that says that something did. Raises ProtocolError."""
    if not failures:
        raise ProtocolError(f"a listener failed behind {handled} and does not say at what")
    return checked(failures[-1], handled, last_id)


def pause(policy: RetryPolicy, failures: int, draw: Draw) -> float:
    """Seconds until the next attempt after so many failures, at least one."""
    grown = policy.first_seconds * policy.factor ** min(failures - 1, _GROWING)
    return min(grown, policy.longest_seconds) * draw(1 - policy.jitter, 1 + policy.jitter)


class Again(msgspec.Struct, frozen=True):
    """Deliver from the position again."""

    seconds: float = 0.0
    """So long from now."""
    singly_until: int = 0
    """Up to this id one message at a time: several failed together, and it has to be known which one is at fault."""


class GiveUp(msgspec.Struct, frozen=True):
    """Put the message aside, then go on behind it."""

    id: int
    reason: str
    attempts: Attempts


class Broken(msgspec.Struct, frozen=True):
    """What was out when a connection broke."""

    position: int
    last_id: int
    """The last id that was out."""
    alone: int
    """The id of the only message that was out, when it was one; 0 when there were more, or nobody can say."""


class FirstInLine:
    """The attempts on the first message that is not handled, in the order of the partition."""

    def __init__(self, policy: RetryPolicy, attempts: Attempts | None, draw: Draw) -> None:
        """`attempts` are those that an earlier worker knew of."""
        self._policy, self._draw = policy, draw
        self.attempts = attempts
        self._refusals = 0

    def failed(self, failed: Failed) -> Again | GiveUp:
        """It failed: what to do next."""
        known = self._known(failed.id - 1)
        self.attempts = known = msgspec.structs.replace(
            known, failures=known.failures + 1, first_error=known.first_error or failed.error, last_error=failed.error
        )  # fmt: skip
        self._refusals = 0
        reason = self._reason_to_give_up(failed, known)
        if reason and failed.last > failed.id:
            return Again(singly_until=failed.last)
        if reason:
            return GiveUp(failed.id, reason, known)
        if failed.kind is Kind.RETRY and failed.after_ms is not None:
            return Again(failed.after_ms / 1000)
        return Again(pause(self._policy, known.failures, self._draw))

    def _reason_to_give_up(self, failed: Failed, known: Attempts) -> str:
        if failed.kind is Kind.UNREADABLE:
            return ""  # nobody has seen the message
        if failed.kind is Kind.REJECTED:
            return "rejected"
        if 0 < self._policy.deliveries_max <= known.failures:
            return f"failed {known.failures} times"
        return ""

    def crashed(self, broken: Broken) -> None:
        """The connection broke while pushes were out. One of them may be why, or none."""
        known = self._known(broken.position)
        known = msgspec.structs.replace(known, crashes=known.crashes + 1)
        if known.crashes >= ISOLATE_AFTER:
            known = msgspec.structs.replace(known, until=max(known.until, broken.last_id))
        if broken.alone:
            before = known.suspected if known.suspect == broken.alone else 0
            known = msgspec.structs.replace(known, suspect=broken.alone, suspected=before + 1)
        self.attempts = known

    @property
    def singly_until(self) -> int:
        """Up to this id one message at a time is to be delivered."""
        return 0 if self.attempts is None else self.attempts.until

    def guilty(self, position: int) -> GiveUp | None:
        """The first message behind `position`, if it crashed its subscriber too often."""
        known = self.attempts
        if known is None or known.after != position or not 0 < self._policy.crashes_max <= known.suspected:
            return None
        return GiveUp(known.suspect, f"its subscriber went away {known.suspected} times", known)

    def gave_up(self, number: int) -> None:
        """It was put aside."""
        self.attempts = Attempts(number, until=self.singly_until) if self.singly_until > number else None

    def _known(self, after: int) -> Attempts:
        known = self.attempts
        return known if known is not None and known.after == after else Attempts(after, until=self.singly_until)

    def refused(self) -> float:
        """A push came to nothing, though its connection stands: the seconds to wait. No message has failed."""
        self._refusals += 1
        return pause(self._policy, self._refusals, self._draw)
