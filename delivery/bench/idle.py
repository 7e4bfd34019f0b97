"""The case `idle`: what subscriptions cost a host that are attached, and to which nothing comes.

They are spread over a hundred queues of one partition. Memory is that of the host's process when all of them have their
worker and their connection, processor time that of a while after, in which nothing happens. In the end every one of
them gets a message, as fast as that goes: a subscription that costs nothing because it sleeps for ever is none.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec

from delivery.bench.checking import BenchFailed, check_checkpoints
from delivery.bench.children import Child
from delivery.bench.gauging import processor_seconds, resident_mib
from delivery.bench.report import Result
from delivery.bench.sleepers import Outcome, Task
from delivery.bench.stage import ATTACH_SECONDS, Setup, queue_for, rated, wait_until, workers
from delivery.client import Queue

_QUEUES: Final = 100
_SETTLE_SECONDS: Final = 5.0


class Asleep(msgspec.Struct, frozen=True):
    """Subscriptions that are attached, a process that answers for all of them, and the queues that they are of."""

    queues: list[Queue]
    each: int
    """Subscriptions of each queue."""
    process: Child

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.queues) * self.each


def idle(setup: Setup) -> Result:
    """See above."""
    assert setup.host_pid is not None, "the engine is the bench's own"
    with ExitStack() as stack:
        queues = stack.enter_context(_queues(setup, setup.subscriptions))
        _forgotten(setup, 0)
        without = resident_mib(setup.host_pid)
        sleepers = stack.enter_context(_attached(setup, queues, setup.subscriptions))
        time.sleep(_SETTLE_SECONDS)
        spent = processor_seconds(setup.host_pid)
        time.sleep(setup.quiet)
        spent = processor_seconds(setup.host_pid) - spent
        memory = resident_mib(setup.host_pid)
        told = _wake(setup, sleepers)
    return msgspec.structs.replace(
        told, subscriptions=sleepers.count, alone_mib=without, host_mib=memory,
        processor_percent=round(spent / setup.quiet * 100, 2),
    )  # fmt: skip


@contextmanager
def asleep(setup: Setup, subscriptions: int, beside: int) -> Iterator[Asleep]:
    """So many subscriptions, or a few more, to which nothing comes, `beside` others; each has its worker."""
    with _queues(setup, subscriptions) as queues, _attached(setup, queues, subscriptions, beside) as sleepers:
        yield sleepers


def _forgotten(setup: Setup, beside: int) -> None:
    """Wait until nothing is served but those of whom that is known."""
    wait_until(lambda: workers(setup.client) == beside, "the subscriptions of earlier cases are served no more")


def _wake(setup: Setup, sleepers: Asleep) -> Result:
    """A message to every queue, and what becomes of it."""
    body = random.randbytes(setup.size)
    begun = time.monotonic_ns()
    stored = [queue.put(body) for queue in sleepers.queues]
    found = sleepers.process.tell(Outcome)
    if found.whole != sleepers.count:
        raise BenchFailed(f"{sleepers.count} subscriptions were to get a message each, and {found.whole} got it")
    for queue, message in zip(sleepers.queues, stored, strict=True):
        for number in (0, sleepers.each - 1):
            check_checkpoints(setup.client, queue.name, f"idle{number}", {message.partition: [int(message.id)]})
    return rated("idle", setup, sleepers.count, found.last_ns - begun)


@contextmanager
def _queues(setup: Setup, subscriptions: int) -> Iterator[list[Queue]]:
    each = -(-subscriptions // _QUEUES)
    alone = msgspec.structs.replace(setup, partitions=1)
    with ExitStack() as stack:
        queues = [stack.enter_context(queue_for(alone)) for _ in range(-(-subscriptions // each))]
        for queue in queues:
            setup.client.queue_info(queue.name)  # a partition that is looked at gets its owner
        yield queues


@contextmanager
def _attached(setup: Setup, queues: list[Queue], subscriptions: int, beside: int = 0) -> Iterator[Asleep]:
    each = -(-subscriptions // len(queues))
    _forgotten(setup, beside)
    process = Child("sleepers", Task(setup.zookeeper, [queue.name for queue in queues], each, 1))
    try:
        process.ready()
        found = Asleep(queues, each, process)
        all_there = beside + found.count
        wait_until(lambda: workers(setup.client) >= all_there, "all have a worker", ATTACH_SECONDS, pause=1.0)
        yield found
    finally:
        process.kill()
