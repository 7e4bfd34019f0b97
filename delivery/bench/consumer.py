"""The subscriber's process of a bench: counts, keeps every id in order of arrival, and measures latencies if asked.

Started by `cases` as `python -m delivery.bench.consumer JSON`; talks by lines of JSON on its standard output. The ids
go to a file, eight bytes each in native order, and with several partitions their numbers to one beside it, two bytes
each, for the parent to hold against what was published. It ends at the end of its standard input, so that it never
outlives the bench, however that ends.
"""

from __future__ import annotations

import sys
import time
from array import array
from pathlib import Path
from threading import Event

import msgspec

from delivery.embedded.lifeline import end_with_parent
from delivery.model import Message
from subscriber import Subscriber


class Task(msgspec.Struct):
    """What to receive."""

    zookeeper: str
    queue: str
    name: str
    expected: int
    """End after this many messages."""
    ids_file: str
    start: str = "latest"
    topics: list[str] = []
    filter: str | None = None
    latency: bool = False
    from_first: bool = False
    """Note when the first message came."""
    batches: bool = False
    """Use a batch listener."""
    spread: bool = False
    """The queue has several partitions: note each message's."""
    seconds_max: float = 600.0


class Outcome(msgspec.Struct):
    """What was received. Times are CLOCK_MONOTONIC, which all processes of a machine share."""

    count: int
    attached_ns: int
    first_ns: int
    """0 unless asked for."""
    last_ns: int
    latencies_ns: list[int]


class Tally:
    """The listener's state: ids in order of arrival, and when the first and the last came."""

    def __init__(self, expected: int) -> None:
        self.ids = array("q")
        self.latencies: list[int] = []
        self.expected = expected
        self.first_ns = self.last_ns = 0
        self.done = Event()

    def message(self, message: Message) -> None:
        """Per message: keep the id; the last one expected stops the clock."""
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


def partitions_beside(ids_file: Path) -> Path:
    """Where the partitions of the messages are whose ids are in that file."""
    return ids_file.with_suffix(".partitions")


def run(task: Task) -> Outcome:
    """Subscribe, receive what is expected, and leave the durable state for the parent to look at."""
    tally = SpreadTally(task.expected) if task.spread else Tally(task.expected)
    subscriber = Subscriber(task.name, zookeeper=task.zookeeper)
    subscription = subscriber.subscribe(task.queue, start=task.start, topics=task.topics or None, filter=task.filter)
    if task.batches:
        subscription.batch_listener(tally.first_batch if task.from_first else tally.batch)
    elif task.from_first:
        subscription.listener(tally.first_message)
    else:
        subscription.listener(tally.timed_message if task.latency else tally.message)
    attached_ns = time.monotonic_ns()
    with subscriber:
        _say({"ready": True})
        tally.done.wait(task.seconds_max)
    with Path(task.ids_file).open("wb") as file:
        tally.ids.tofile(file)
    if isinstance(tally, SpreadTally):
        with partitions_beside(Path(task.ids_file)).open("wb") as file:
            tally.partitions.tofile(file)
    return Outcome(len(tally.ids), attached_ns, tally.first_ns, tally.last_ns, tally.latencies)


def _say(value: object) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    end_with_parent()
    _say(run(msgspec.json.decode(sys.argv[1], type=Task)))
