"""The listeners of a bench: each keeps every id in order of arrival, and what else its case wants to know."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final

from delivery.model import Message

FAILING: Final = "failing"
"""The topic of messages that are not handled when they come first."""


class NotYet(Exception):
    """What a listener raises that fails on purpose."""


class Tally:
    """Of one partition: ids in order of arrival, and when the first and the last came."""

    def __init__(self, expected: int) -> None:
        """`done` is set by the last message that is expected, which stops the clock."""
        self.ids = array("q")
        self.latencies: list[int] = []
        self.expected = expected
        self.first_ns = self.last_ns = 0
        self.redelivered = 0
        self.done = Event()

    def message(self, message: Message) -> None:
        """Per message."""
        self.ids.append(message.number)
        if len(self.ids) == self.expected:
            self._end()

    def timed_message(self, message: Message) -> None:
        """As `message`, with the time since the publisher meant to send it (first 8 bytes of the body)."""
        self.latencies.append(time.monotonic_ns() - int.from_bytes(message.body[:8], "little"))
        self.message(message)

    def first_message(self, message: Message) -> None:
        """As `message`, noting when the first one came."""
        self.first_ns = self.first_ns or time.monotonic_ns()
        self.message(message)

    def first_batch(self, messages: list[Message]) -> None:
        """As `batch`, noting when the first message came."""
        self.first_ns = self.first_ns or time.monotonic_ns()
        self.batch(messages)

    def batch(self, messages: list[Message]) -> None:
        """Per push."""
        self.ids.extend([message.number for message in messages])
        if len(self.ids) >= self.expected:
            self._end()

    def slowly(self, seconds: float) -> Callable[[Message], None]:
        """A listener that takes so long for each message."""

        def message(message: Message) -> None:
            time.sleep(seconds)
            self.message(message)

        return message

    def save(self, ids: Path) -> None:
        """Leave what was noted to files: the ids in this one, all else beside it."""
        _write(ids, self.ids)

    def _end(self) -> None:
        self.last_ns = time.monotonic_ns()
        self.done.set()


class SpreadTally(Tally):
    """Keeps the partitions, too. They are noted first: the last id ends the wait for both."""

    def __init__(self, expected: int) -> None:
        super().__init__(expected)
        self.partitions = array("H")

    def message(self, message: Message) -> None:
        """As Tally.message, which is written out here: another call would cost as much as all of it."""
        self.partitions.append(message.partition)
        self.ids.append(message.number)
        if len(self.ids) == self.expected:
            self._end()

    def batch(self, messages: list[Message]) -> None:
        """As Tally.batch; a push is of one partition."""
        self.partitions.extend([messages[0].partition] * len(messages))
        super().batch(messages)

    def save(self, ids: Path) -> None:
        """See Tally.save."""
        super().save(ids)
        _write(partitions_beside(ids), self.partitions)


class MemberTally(SpreadTally):
    """Keeps the time of each message as well. The file for the ids is there, and empty, from the first message on."""

    def __init__(self, expected: int, ids: Path) -> None:
        super().__init__(expected)
        self.times = array("q")
        self._ids = ids
        ids.unlink(missing_ok=True)

    def message(self, message: Message) -> None:
        """As SpreadTally.message."""
        if not self.times:
            self._ids.touch()
        self.times.append(time.monotonic_ns())
        super().message(message)

    def save(self, ids: Path) -> None:
        """See Tally.save."""
        super().save(ids)
        _write(times_beside(ids), self.times)


class StormTally(SpreadTally):
    """Fails at each message of the topic FAILING when it comes first; `first_ns` is when the last other one came."""

    def __init__(self, expected: int) -> None:
        super().__init__(expected)
        self._met: set[tuple[int, int]] = set()

    def message(self, message: Message) -> None:
        """As SpreadTally.message. Raises NotYet."""
        if message.topic == FAILING:
            place = message.partition, message.number
            if place not in self._met:
                self._met.add(place)
                raise NotYet("it fails when it comes first")
            self.redelivered += 1
        else:
            self.first_ns = time.monotonic_ns()
        super().message(message)


def partitions_beside(ids: Path) -> Path:
    """Where the partitions of the messages are whose ids are in that file, two bytes each."""
    return ids.with_suffix(".partitions")


def times_beside(ids: Path) -> Path:
    """Where the times of their callbacks are, if these were noted: nanoseconds of CLOCK_MONOTONIC."""
    return ids.with_suffix(".times")


def _write(path: Path, values: array[int]) -> None:
    with path.open("wb") as file:
        values.tofile(file)
