"""The keys of a partition that wait, so that others need not (`order="key"`): plain decisions.

A message that its listener did not handle parks its key: the messages of that key wait, in order, and everything else
goes on. A message without a key is parked alone. Parked messages come again by *retry pushes*, those of a key one after
another, and what they are answered with moves on here. What is parked is saved with the position, which means:
everything up to there was handled, given up, or is parked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from delivery.dispatch.retry import ISOLATE_AFTER, Draw, Failed, Kind, pause
from delivery.metastore.managers.records import Attempts, ParkedKey
from delivery.metastore.policy import RetryPolicy

MESSAGES_MAX: Final = 1000
"""Parked in one partition of one subscription; with more the partition waits, as with order="partition"."""
BYTES_MAX: Final = 128 * 1024
"""What they take in the state: keys can be large, and ZooKeeper keeps little."""
TOGETHER: Final = 50
"""Messages of one key in one retry push."""
OUT_MAX: Final = 16
"""Retry pushes of a partition that are not answered yet."""

_ID_BYTES: Final = 20

Slot = bytes | int
"""A key, or the id of a message without one."""


class GiveUpHead(msgspec.Struct, frozen=True):
    """Put the first message of a key aside, then call `gave_up`."""

    slot: Slot
    id: int
    reason: str
    attempts: Attempts


class SendAgain(msgspec.Struct, frozen=True):
    """Send these messages as a retry push, tell which are settled without it, then call `sent`."""

    slot: Slot
    ids: tuple[int, ...]
    settled: tuple[int, ...]
    alone: bool = False
    """Nothing else may be out with it: it may be what takes its subscriber down."""


class WaitUntil(msgspec.Struct, frozen=True):
    """Nothing to do until then, or until something happens; None for never."""

    due_ms: int | None


Step = GiveUpHead | SendAgain | WaitUntil


class Parking:
    """What is parked of one partition of one subscription. Times are in milliseconds."""

    def __init__(self, policy: RetryPolicy, parked: Sequence[ParkedKey], draw: Draw, lanes: int = 1) -> None:
        """`parked` is what the state holds; so many `lanes` have its room together."""
        self._messages_max, self._bytes_max = max(MESSAGES_MAX // lanes, 2), max(BYTES_MAX // lanes, 2)
        self._policy, self._draw = policy, draw
        self._keys: dict[Slot, ParkedKey] = {_slot(one.key, one.ids[0]): one for one in parked}
        self._out: dict[Slot, tuple[int, ...]] = {}
        self._untold: dict[Slot, tuple[int, ...]] = {}
        """Given up, which the subscriber does not know yet."""
        self._alone = False
        """A push is out that nothing may be out with."""
        self._messages = sum(len(one.ids) for one in parked)
        self._bytes = sum(map(_size, parked))

    def __bool__(self) -> bool:
        """Whether anything is parked."""
        return bool(self._keys)

    @property
    def out(self) -> int:
        """Retry pushes without an answer."""
        return len(self._out)

    @property
    def is_full(self) -> bool:
        """Whether the partition has to wait until some of it is gone."""
        return self._messages >= self._messages_max // 2 or self._bytes >= self._bytes_max // 2

    def waiting(self) -> tuple[ParkedKey, ...]:
        """All that is parked, to be saved."""
        return tuple(self._keys.values())

    def messages(self) -> Iterator[tuple[int, bytes | None]]:
        """The id and key of all messages that are parked."""
        return ((number, one.key) for one in self._keys.values() for number in one.ids)

    # -- what happens

    def park(self, failed: Failed, now_ms: int) -> bool:
        """A message of a push was not handled; False when there is no room for it, and nothing has changed."""
        slot = _slot(failed.key, failed.id)
        known = self._keys.get(slot)
        if known is None:
            made = ParkedKey(failed.key, (failed.id,), due_ms=now_ms)
            made = made if failed.kind is Kind.HELD else self._counted(made, failed, now_ms)
            if not self._has_room(1, _size(made)):
                return False
            self._put(slot, made)
        elif failed.id > known.ids[-1]:
            if not self._has_room(1, _ID_BYTES):
                return False
            self._put(slot, msgspec.structs.replace(known, ids=(*known.ids, failed.id)))
        return True

    def begin(self, now_ms: int) -> None:
        """A run begins, maybe by another clock than the one that due times were taken from, which may be far ahead."""
        for slot, one in list(self._keys.items()):
            if one.due_ms > (latest := now_ms + one.pause_ms):
                self._put(slot, msgspec.structs.replace(one, due_ms=latest))

    def next(self, now_ms: int) -> Step:
        """What to do now."""
        if self._alone:
            return WaitUntil(None)
        for slot, ids in self._untold.items():
            if slot not in self._keys and slot not in self._out:
                return SendAgain(slot, (), ids)
        earliest: int | None = None
        for slot, one in self._keys.items():
            if slot in self._out:
                continue
            if one.reason:
                return GiveUpHead(slot, one.ids[0], one.reason, _attempts(one))
            if one.due_ms <= now_ms and len(self._out) < OUT_MAX:
                alone = self._policy.crashes_max > 0 and one.crashes >= ISOLATE_AFTER
                return SendAgain(slot, one.ids[: 1 if alone else TOGETHER], self._untold.get(slot, ()), alone)
            if one.due_ms > now_ms and (earliest is None or one.due_ms < earliest):
                earliest = one.due_ms
        return WaitUntil(earliest)

    def sent(self, step: SendAgain) -> None:
        """A retry push went out."""
        self._out[step.slot] = step.ids
        self._alone = step.alone
        self._untold.pop(step.slot, None)

    def answered(self, slot: Slot, failures: Iterable[Failed], now_ms: int) -> None:
        """It was answered: all of its messages that are not among the failures were handled."""
        sent = self._out.pop(slot, ())
        self._alone = False
        first = {failed.id: failed for failed in failures}
        for number in sent:
            if number in first:
                failed = first[number]
                self._put(slot, self._after_retry(self._keys[slot], failed, now_ms))
                return
            self._drop_head(slot, now_ms)

    def broken(self) -> bool:
        """The connection broke; whether anything was out that it may have to do with."""
        for slot, ids in self._out.items():
            if ids:
                self._put(slot, self._suspected(self._keys[slot]))
        return any(self._out.values())

    def gave_up(self, slot: Slot, now_ms: int) -> None:
        """The first message of a key was put aside, or is stored no longer."""
        number = self._drop_head(slot, now_ms)
        self._untold[slot] = (*self._untold.get(slot, ()), number)

    def rewound(self) -> None:
        """A new run begins: what was out is not any more, and the subscriber will hear of all that is parked."""
        self._out.clear()
        self._alone = False
        self._untold.clear()

    # -- within

    def _suspected(self, one: ParkedKey) -> ParkedKey:
        suspected = one.suspected + self._alone
        reason = f"its subscriber went away {suspected} times" if 0 < self._policy.crashes_max <= suspected else ""
        return msgspec.structs.replace(
            one, crashes=one.crashes + 1, suspected=suspected, reason=one.reason or reason
        )  # fmt: skip

    def _after_retry(self, one: ParkedKey, failed: Failed, now_ms: int) -> ParkedKey:
        if failed.kind is Kind.HELD:  # behind one that the host does not know of; it will
            pause_ms = int(self._policy.first_seconds * 1000)
            return msgspec.structs.replace(one, due_ms=now_ms + pause_ms, pause_ms=pause_ms)
        return self._counted(one, failed, now_ms)

    def _counted(self, one: ParkedKey, failed: Failed, now_ms: int) -> ParkedKey:
        """The key after a failure of its first message."""
        failures = one.failures + 1
        seconds = pause(self._policy, failures, self._draw)
        if failed.kind is Kind.RETRY and failed.after_ms is not None:
            seconds = failed.after_ms / 1000
        pause_ms = int(seconds * 1000)
        return msgspec.structs.replace(
            one, failures=failures, due_ms=now_ms + pause_ms, pause_ms=pause_ms,
            first_error=one.first_error or failed.error, last_error=failed.error,
            reason=self._policy_reason(failed, failures), crashes=0,
        )  # fmt: skip

    def _policy_reason(self, failed: Failed, failures: int) -> str:
        if failed.kind is Kind.REJECTED:
            return "rejected"
        return f"failed {failures} times" if 0 < self._policy.deliveries_max <= failures else ""

    def _drop_head(self, slot: Slot, now_ms: int) -> int:
        one = self._keys[slot]
        if len(one.ids) == 1:
            del self._keys[slot]
            self._messages -= 1
            self._bytes -= _size(one)
        else:
            self._put(slot, ParkedKey(one.key, one.ids[1:], due_ms=now_ms))
        return one.ids[0]

    def _put(self, slot: Slot, one: ParkedKey) -> None:
        before = self._keys.get(slot)
        self._messages += len(one.ids) - (0 if before is None else len(before.ids))
        self._bytes += _size(one) - (0 if before is None else _size(before))
        self._keys[slot] = one

    def _has_room(self, messages: int, size: int) -> bool:
        return self._messages + messages <= self._messages_max and self._bytes + size <= self._bytes_max


def _slot(key: bytes | None, number: int) -> Slot:
    return number if key is None else key


def _attempts(one: ParkedKey) -> Attempts:
    return Attempts(one.ids[0] - 1, one.failures, one.first_error, one.last_error, suspected=one.suspected)


def _size(one: ParkedKey) -> int:
    return len(msgspec.json.encode(one))
