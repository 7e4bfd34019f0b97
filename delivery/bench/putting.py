"""The case `publish`: publishers alone, from the first message until every one is stored.

A `put` for each, as in all other cases; or lists of messages by `put_many`; or each message awaited before its caller
puts the next: by `Queue.put` in a thread, or by an AsyncPublisher in a task of a trio program. There may be many
callers at the same time. In the end the partitions must hold what was acknowledged, and nothing else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Final, TypeVar

import msgspec
import trio

from delivery.bench.checking import by_partition, check_stored
from delivery.bench.gauging import Cost
from delivery.bench.report import Result, with_latencies
from delivery.bench.stage import Setup, beside_raw, publisher_for, put_all, queue_for, rated
from delivery.client import Queue
from delivery.client.aio_publisher import AsyncPublisher
from delivery.client.aio_queue import AsyncQueue
from delivery.client.publisher import PublishedMessage, Receipt

LIST: Final = 1000
"""Messages that one `put_many` gets."""
BY: Final = {
    "put": None,
    "put_many": f"put_many of {LIST:,}",
    "awaited": "put, each awaited, in {:,} thread{}",
    "tasks": "put, each awaited, in {:,} task{}",
}
"""How it is told."""

T = TypeVar("T")


class Awaited(msgspec.Struct, gc=False):
    """A message that its caller waited for, so many nanoseconds."""

    stored: PublishedMessage
    nanoseconds: int


def publish(setup: Setup) -> Result:
    """See above. The percentiles are those of what was awaited."""
    ways: dict[str, Callable[[Setup, Queue], list[Receipt] | list[Awaited]]] = {
        "put": _put, "put_many": _put_many, "awaited": _awaited, "tasks": _in_tasks,
    }  # fmt: skip
    with queue_for(setup) as queue:
        cost = Cost(setup.host_pid)
        begun = time.monotonic_ns()
        found = ways[setup.by](setup, queue)
        told = cost.beside(rated("publish", setup, setup.messages, time.monotonic_ns() - begun))
        stored = by_partition(one.stored if isinstance(one, Awaited) else one.result() for one in found)
        check_stored(queue, stored, setup.messages)
        took = [one.nanoseconds for one in found if isinstance(one, Awaited)]
        told = msgspec.structs.replace(told, by=_told(setup))
        return beside_raw(setup, queue, with_latencies(told, took) if took else told)


def _told(setup: Setup) -> str | None:
    words = BY[setup.by]
    if words is None:
        return None if setup.callers == 1 else f"put in {setup.callers:,} threads"
    return words.format(setup.callers, "" if setup.callers == 1 else "s")


def _put(setup: Setup, queue: Queue) -> list[Receipt]:
    with publisher_for(setup, queue) as publisher:
        return _in_threads(setup, lambda messages: put_all(setup, publisher, messages))


def _put_many(setup: Setup, queue: Queue) -> list[Receipt]:
    body = random.randbytes(setup.size)

    def work(messages: int) -> list[Receipt]:
        sizes = [LIST] * (messages // LIST) + [messages % LIST]
        return [receipt for size in sizes for receipt in publisher.put_many([body] * size)]

    with publisher_for(setup, queue) as publisher:
        return _in_threads(setup, work)


def _awaited(setup: Setup, queue: Queue) -> list[Awaited]:
    body = random.randbytes(setup.size)

    def work(messages: int) -> list[Awaited]:
        found = []
        for _ in range(messages):
            begun = time.monotonic_ns()
            found.append(Awaited(queue.put(body), time.monotonic_ns() - begun))
        return found

    return _in_threads(setup, work)


def _in_tasks(setup: Setup, queue: Queue) -> list[Awaited]:
    body = random.randbytes(setup.size)
    found: list[Awaited] = []

    async def work(publisher: AsyncPublisher, messages: int) -> None:
        for _ in range(messages):
            begun = time.monotonic_ns()
            stored = await (await publisher.put(body)).result()
            found.append(Awaited(stored, time.monotonic_ns() - begun))

    async def all_of_them() -> None:
        async with await AsyncQueue(queue).publisher(linger_ms=0) as publisher, trio.open_nursery() as nursery:
            for share in _shares(setup):
                nursery.start_soon(work, publisher, share)

    trio.run(all_of_them)
    return found


def _in_threads(setup: Setup, work: Callable[[int], list[T]]) -> list[T]:
    """What all callers got; one alone is this thread."""
    shares = _shares(setup)
    if len(shares) == 1:
        return work(shares[0])
    with ThreadPoolExecutor(len(shares)) as threads:
        return list(chain.from_iterable(threads.map(work, shares)))


def _shares(setup: Setup) -> list[int]:
    """How many messages each caller puts."""
    each, rest = divmod(setup.messages, setup.callers)
    return [each + (number < rest) for number in range(setup.callers)]
