"""A subscriber as a process of its own that acknowledges by hand: at once, later, never, or not at all.

Writes a line for each message that it got (`got ID`), before it acknowledges one (`acknowledges ID`), and when that
counted (`acknowledged ID`). Run as `python -m tests.integration.by_hand JSON`; says `ready` when it is attached.
"""

from __future__ import annotations

import os
import random
import sys
import threading

import msgspec

from subscriber import ManualMessage, Retry, RetryPolicy, Subscriber


class Orders(msgspec.Struct):
    """How to behave."""

    zookeeper: str
    queue: str
    file: str
    retry: RetryPolicy
    seed: int = 0
    forgets: float = 0.0
    """The part of messages that nobody acknowledges."""
    refuses: float = 0.0
    """The part that is given back."""
    later_seconds: float = 0.0
    """Up to so long after it came a message is acknowledged, by a thread of its own."""


class Worker:
    """The listener."""

    def __init__(self, orders: Orders) -> None:
        self._orders, self._random = orders, random.Random(orders.seed)
        self._file = os.open(orders.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def __call__(self, message: ManualMessage) -> None:
        self._note("got", message)
        what, orders = self._random.random(), self._orders
        if what < orders.forgets:
            return
        seconds = self._random.random() * orders.later_seconds
        work = self._refuse if what < orders.forgets + orders.refuses else self._acknowledge
        if seconds:
            threading.Timer(seconds, work, (message,)).start()
        else:
            work(message)

    def _acknowledge(self, message: ManualMessage) -> None:
        self._note("acknowledges", message)  # before: a kill in between must not hide one that counts
        if message.ack():
            self._note("acknowledged", message)

    def _refuse(self, message: ManualMessage) -> None:
        message.nack(Retry(after=0.05))

    def _note(self, what: str, message: ManualMessage) -> None:
        os.write(self._file, b"%s %d\n" % (what.encode(), message.number))


def main() -> None:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    subscriber = Subscriber("hand", zookeeper=orders.zookeeper, force=True)
    subscriber.subscribe(orders.queue, start="earliest", manual=True, retry=orders.retry, listener=Worker(orders))
    subscriber.start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
