"""A subscriber as a process of its own that writes down every callback where a kill -9 cannot reach it.

Each callback appends 8 bytes (the message's id and, in the top bits, its partition) with one unbuffered write, so what
is in the file was handled, whatever happened next. Run as `python recorder.py JSON`; says `ready` when it is attached.
"""

from __future__ import annotations

import os
import sys
import threading

import msgspec

from delivery.metastore.groups import Kind
from subscriber import Message, RetryPolicy, Subscriber

PARTITION_SHIFT = 56
"""Ids of this century stay below 2**56."""


NEVER = threading.Event()
READY = threading.Event()
"""Whoever starts this process was told that it is attached."""


class Orders(msgspec.Struct):
    """How to behave."""

    zookeeper: str
    queue: str
    name: str
    file: str
    start: str = "earliest"
    topics: list[str] = []
    partitions: list[int] | None = None
    die_at: int = 0
    """Exit at once, inside the callback and after writing it down, at this many messages; 0 for never."""
    hang_at: int = 0
    """Never return from the callback of this message; 0 for never."""
    fail_every: int = 0
    """Raise at each of these, once per message; 0 for never."""
    retry: RetryPolicy | None = None
    poison: int = 0
    """The id of a message to raise at whenever it comes; 0 for none."""
    deadly: int = 0
    """The id of a message to exit at, before it is written down; 0 for none."""
    kind: Kind | None = None
    member: str | None = None
    session_seconds: float = 6.0
    pause_seconds: float = 0.0
    """In each callback."""


class Recorder:
    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.file = os.open(orders.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.count = 0
        self.failed: set[int] = set()

    def __call__(self, message: Message) -> None:
        orders = self.orders
        self.count += 1
        if orders.fail_every and self.count % orders.fail_every == 0 and message.number not in self.failed:
            self.failed.add(message.number)
            raise ValueError("told to fail")
        if message.number == orders.poison:
            raise ValueError("poison")
        if message.number == orders.deadly:
            READY.wait(30)
            os._exit(9)
        if orders.pause_seconds:
            NEVER.wait(orders.pause_seconds)
        os.write(self.file, (message.partition << PARTITION_SHIFT | message.number).to_bytes(8, "little"))
        if self.count == orders.die_at:
            os._exit(9)
        if self.count == orders.hang_at:
            NEVER.wait(3600)


def main() -> None:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    subscriber = Subscriber(
        orders.name, zookeeper=orders.zookeeper, member=orders.member, session_timeout_seconds=orders.session_seconds
    )
    subscription = subscriber.subscribe(
        orders.queue,
        start=orders.start,
        topics=orders.topics or None,
        partitions=orders.partitions,
        retry=orders.retry,
        kind=orders.kind,
    )
    subscription.listener(Recorder(orders))
    subscriber.start()
    print("ready", flush=True)
    READY.set()
    subscriber.run()


if __name__ == "__main__":
    main()
