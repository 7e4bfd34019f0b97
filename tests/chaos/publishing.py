"""A publisher of a chaos run: `python -m tests.chaos.publishing ORDERS`. Every put and its outcome are written down.

A put that was refused although it may succeed later is put again as a new message with a body of its own: the body of a
refused put must never be seen. One whose outcome is unknown is left at that.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from zlib import crc32

import msgspec

from delivery.client import PublishedMessage, Publisher, Queue, Receipt
from delivery.errors import HootError, UnknownOutcome
from tests.chaos import role
from tests.chaos.history import History, body_of

TOPICS = ("", "a", "a", "b")
RETRIES_MAX = 500
"""Refused puts that wait to be put again."""


class Orders(msgspec.Struct, frozen=True):
    """How to publish."""

    zookeeper: str
    queue: str
    name: str
    """Of this incarnation: bodies begin with it."""
    file: str
    rate: float
    """Puts a second, about."""
    timeout: float
    """After which a put that was not stored fails."""
    direct: bool = False
    """One message at a time, waited for, instead of batches."""


class Work:
    """One incarnation at work."""

    def __init__(self, orders: Orders, stop: threading.Event) -> None:
        self.orders, self._stop = orders, stop
        self._history = History(orders.file)
        self._random = random.Random(orders.name)
        self._count = 0
        self._again: deque[bytes] = deque(maxlen=RETRIES_MAX)

    def run(self) -> None:
        self._history.note("begin")
        client = role.connected(self.orders.zookeeper, self._stop)
        if client is None:
            return
        with client:
            queue = client.queue(self.orders.queue)
            if self.orders.direct:
                self._each(partial(self._put_and_wait, queue))
            else:
                publisher = queue.publisher(linger_ms=2, batch_messages=64, timeout=self.orders.timeout)
                try:
                    self._each(partial(self._put, publisher))
                finally:
                    try:
                        publisher.close()
                    except HootError as error:
                        print(f"closing: {error!r}", flush=True)
        self._history.note("end")

    def _each(self, put: partial[None]) -> None:
        while not self._stop.wait(self._random.expovariate(self.orders.rate / 4)):
            for _ in range(self._random.randint(1, 7)):
                put(self._again.popleft() if self._again else self._random.randbytes(4))

    def _begin(self) -> tuple[int, bytes, str]:
        """The next put, written down."""
        self._count += 1
        topic = self._random.choice(TOPICS)
        size = 8_000 if self._random.random() < 0.01 else self._random.randint(0, 200)
        body = body_of(f"{self.orders.name}.{self._count}", size)
        self._history.note("try", self._count, topic or "-", crc32(body))
        return self._count, body, topic

    def _put(self, publisher: Publisher, key: bytes) -> None:
        number, body, topic = self._begin()
        try:
            receipt = publisher.put(body, key=key, topic=topic)
        except HootError as error:
            self._failed(number, key, error)
        else:
            receipt.add_done_callback(partial(self._told, number, key))

    def _told(self, number: int, key: bytes, receipt: Receipt) -> None:
        self._settle(number, key, partial(receipt.result, 0))

    def _put_and_wait(self, queue: Queue, key: bytes) -> None:
        number, body, topic = self._begin()
        self._settle(number, key, partial(queue.put, body, key=key, topic=topic, timeout=self.orders.timeout))

    def _settle(self, number: int, key: bytes, outcome: Callable[[], PublishedMessage]) -> None:
        try:
            stored = outcome()
        except HootError as error:
            self._failed(number, key, error)
        else:
            self._history.note("stored", number, stored.partition, int(stored.id))

    def _failed(self, number: int, key: bytes, error: HootError) -> None:
        if isinstance(error, UnknownOutcome):
            self._history.note("unknown", number, error.code)
            return
        self._history.note("refused" if error.retryable else "refused-for-good", number, error.code)
        if error.retryable:
            self._again.append(key)


def main() -> None:
    Work(role.given(Orders), role.told_to_stop()).run()


if __name__ == "__main__":
    main()
