"""What a subscriber holds of a partition with `order="key"`: messages that were not handled, and those behind them.

Plain decisions. A message is *unsettled* from its first failure, or from being held behind an unsettled one of its key,
until a retry push of the host brings it again and it is handled, or says that it was given up. A key is held as long as
a message of it is unsettled. Everything that this subscriber has seen and that is not unsettled was handled: so a retry
push whose answer was lost calls nobody twice.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from delivery.model import Message

UNSETTLED_MAX: Final = 10_000
"""Of a partition; with more a failure ends the run."""

RAISED, RETRY, REJECTED, UNREADABLE, HELD = range(5)
"""The kinds of failures in idl/subscriber.thrift."""


class Unhandled(msgspec.Struct, frozen=True):
    """A message that was not handled, and why."""

    id: int
    key: bytes | None
    kind: int
    after_ms: int | None = None
    error: str = ""
    last: int = 0
    """The last one that failed with it, if others did."""


class Holding:
    """Of one partition."""

    __slots__ = ("_earlier", "_floor", "_keys", "_unsettled")

    def __init__(self) -> None:
        self._floor = 0
        self._earlier: set[int] = set()
        """What was handled of messages that were parked before all that was seen here, and may be so still."""
        self._unsettled: dict[int, Unhandled] = {}
        self._keys: dict[bytes, list[int]] = {}
        """The unsettled ids of each key, rising."""

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self._unsettled)

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be held."""
        return len(self._unsettled) >= UNSETTLED_MAX

    def begin_turn(self, after: int, floor: int, position: int, parked: Iterable[tuple[int, bytes | None]]) -> None:
        """A new run begins behind `after`, up to where `parked` is what the host has parked.

        Everything in `(floor, position]` was seen here: what of it is not unsettled was handled, whether the
        host knows it or not.
        """
        before, self._unsettled, self._keys = self._unsettled, {}, {}
        earlier, self._earlier, self._floor = self._earlier, set(), floor
        known = {one.id: one for one in before.values() if one.id > after}
        for number, key in parked:
            if number in earlier:
                self._earlier.add(number)
            elif number in before or not floor < number <= position:
                known[number] = before.get(number) or Unhandled(number, key, HELD)
        for number in sorted(known):
            self.hold(known[number])

    def free(self, messages: Iterable[Message]) -> Iterator[Message]:
        """The messages whose keys are not held; the others are held from now on."""
        for message in messages:
            if message.key is not None and message.key in self._keys:
                self.hold(Unhandled(message.number, message.key, HELD))
            else:
                yield message

    def hold(self, one: Unhandled) -> None:
        """A message was not handled."""
        if one.key is not None and one.id not in self._unsettled:
            insort(self._keys.setdefault(one.key, []), one.id)
        self._unsettled[one.id] = one
        self._earlier.discard(one.id)

    def settle(self, number: int) -> None:
        """A message was handled, or given up; nothing when it is not held."""
        one = self._unsettled.pop(number, None)
        if one is not None and number <= self._floor:
            self._earlier.add(number)
        if one is not None and one.key is not None:
            ids = self._keys[one.key]
            ids.remove(number)
            if not ids:
                del self._keys[one.key]

    def forget(self, after: int) -> None:
        """What lies above `after` is not held any more: it comes again."""
        for number in [number for number in self._unsettled if number > after]:
            self.settle(number)

    def is_next(self, message: Message) -> bool:
        """Whether it is unsettled, and no earlier one of its key is."""
        return message.number in self._unsettled and (
            message.key is None or self._keys[message.key][0] == message.number
        )  # fmt: skip

    def is_unsettled(self, number: int) -> bool:
        """Whether a message was seen and not handled."""
        return number in self._unsettled

    def between(self, after: int, last: int) -> list[Unhandled]:
        """What is unsettled above `after` and up to `last`, by id."""
        return [self._unsettled[number] for number in sorted(self._unsettled) if after < number <= last]
