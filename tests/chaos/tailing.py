"""A reader that follows every partition of the queue: `python -m tests.chaos.tailing ORDERS`. All it reads is noted.

It keeps its places, so whatever appears later behind one of them was skipped, and shows as a hole.
"""

from __future__ import annotations

import threading

import msgspec

from delivery.client import Queue
from delivery.errors import HootError
from tests.chaos import role
from tests.chaos.history import History, fields


class Orders(msgspec.Struct, frozen=True):
    """What to read."""

    zookeeper: str
    queue: str
    file: str


def follow(queue: Queue, partition: int, history: History, stop: threading.Event) -> None:
    """Read one partition until told to stop; errors are waited out at the same place."""
    scanner = None
    while not stop.is_set():
        try:
            scanner = scanner or queue.partition_scanner(partition, follow=True, timeout=2.0)
            message = scanner.next(0.5)
        except HootError as error:
            if not error.retryable:
                print(f"partition {partition}: {error!r}", flush=True)
            stop.wait(role.AGAIN_SECONDS)
            continue
        if message is not None:
            history.note("read", *fields(message))


def main() -> None:
    orders, stop = role.given(Orders), role.told_to_stop()
    history = History(orders.file)
    client = role.connected(orders.zookeeper, stop)
    if client is None:
        return
    with client:
        queue = client.queue(orders.queue)
        threads = [
            threading.Thread(target=follow, args=(queue, partition, history, stop))
            for partition in range(queue.partitions)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
