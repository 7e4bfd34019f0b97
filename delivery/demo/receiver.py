"""The subscriber's process of the demo: some subscriptions, each callback noted in a file.

Started as `python -m delivery.demo.receiver JSON`. Says one line, `ready`, when all are attached. Ends at the end of
its standard input, so that it never outlives the demo, however that ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from delivery.demo.records import Received, RecordFile
from delivery.model import Message
from subscriber import Recorder, Subscriber

PUT_HEADER = "put_ns"
"""When the publisher's `put` was entered: CLOCK_MONOTONIC in ns, as decimal digits."""
DELIVERIES = "deliveries"
"""The folder with what subscribers record for the audit."""


class Scope(msgspec.Struct, frozen=True):
    """One subscription and what it covers."""

    name: str
    partitions: list[int] | None = None
    """None for all."""
    topic: str | None = None
    """None for all."""

    def covers(self, partition: int, topic: str) -> bool:
        """Whether a message belongs to it."""
        return (self.partitions is None or partition in self.partitions) and self.topic in (None, topic)


class Task(msgspec.Struct, frozen=True):
    """What to receive."""

    zookeeper: str
    queue: str
    folder: str
    """Where the callbacks are kept, in `NAME.callbacks`, and the records for the audit, in DELIVERIES."""
    scopes: list[Scope]


class Record(msgspec.Struct):
    """What a callback reads of a body."""

    carrier: str
    dep_delay: int | None


def records_of(folder: Path, name: str) -> Path:
    """The file with the callbacks of a subscription."""
    return folder / f"{name}.callbacks"


def listener(file: RecordFile) -> Callable[[Message], None]:
    """The callback: reads the message, as an application would, and notes what it read."""
    decode = msgspec.json.Decoder(Record).decode

    def note(message: Message) -> None:
        flight = decode(message.body)
        at_ns = time.monotonic_ns()
        waited_us = (at_ns - int(message.headers[PUT_HEADER])) // 1000
        file.append(Received(
            message.number, at_ns, waited_us, len(message.body), message.partition, flight.dep_delay, flight.carrier
        ))  # fmt: skip

    return note


def run(task: Task) -> None:
    """Receive until the end of the standard input. Raises the errors of `Subscriber.start`."""
    with ExitStack() as stack:
        for scope in task.scopes:
            file = RecordFile(records_of(Path(task.folder), scope.name))
            stack.callback(file.close)
            # A process that was killed is a live subscriber to ZooKeeper until its session times out: hence force.
            subscriber = Subscriber(scope.name, zookeeper=task.zookeeper, force=True)
            subscription = subscriber.subscribe(
                task.queue, partitions=scope.partitions, topics=[scope.topic] if scope.topic else None, start="earliest"
            )
            subscription.listener(listener(file))
            subscription.batch_listener(stack.enter_context(Recorder(Path(task.folder) / DELIVERIES, scope.name)))
            stack.enter_context(subscriber)
        print("ready", flush=True)
        sys.stdin.buffer.read()


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=Task))
