"""The case `idle`: what subscriptions cost a host that are attached, and to which nothing comes.

They are spread over a hundred queues of one partition. Memory is that of the host's process when all of them have their
worker and their connection, processor time that of a while after, in which nothing happens. In the end every one of
them gets a message, as fast as that goes: a subscription that costs nothing because it sleeps for ever is none.
"""

from __future__ import annotations

import random
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec

from delivery.bench.checking import BenchFailed, check_checkpoints
from delivery.bench.children import Child
from delivery.bench.gauging import processor_seconds, resident_mib
from delivery.bench.report import Result
from delivery.bench.sleepers import Outcome, Task
from delivery.bench.stage import Setup, queue_for, rated, wait_until
from delivery.client import Client, Queue

_QUEUES: Final = 100
_SETTLE_SECONDS: Final = 5.0
_ATTACH_SECONDS: Final = 600.0


def idle(setup: Setup) -> Result:
    """See above."""
    assert setup.host_pid is not None, "the engine is the bench's own"
    each = -(-setup.subscriptions // _QUEUES)
    with ExitStack() as stack:
        queues = [stack.enter_context(queue_for(setup)) for _ in range(-(-setup.subscriptions // each))]
        for queue in queues:
            setup.client.queue_info(queue.name)  # a partition that is looked at gets its owner
        without = resident_mib(setup.host_pid)
        sleepers = stack.enter_context(_sleepers(setup, queues, each))
        count = len(queues) * each
        wait_until(lambda: _workers(setup.client) >= count, "all have a worker", _ATTACH_SECONDS, pause=1.0)
        time.sleep(_SETTLE_SECONDS)
        spent = processor_seconds(setup.host_pid)
        time.sleep(setup.quiet)
        spent = processor_seconds(setup.host_pid) - spent
        memory = resident_mib(setup.host_pid)
        told = _wake(setup, queues, sleepers, count, each)
    return msgspec.structs.replace(
        told, subscriptions=count, alone_mib=without, host_mib=memory,
        processor_percent=round(spent / setup.quiet * 100, 2),
    )  # fmt: skip


def _wake(setup: Setup, queues: list[Queue], sleepers: Child, count: int, each: int) -> Result:
    """A message to every queue, and what becomes of it."""
    body = random.randbytes(setup.size)
    begun = time.monotonic_ns()
    stored = [queue.put(body) for queue in queues]
    found = sleepers.tell(Outcome)
    if found.whole != count:
        raise BenchFailed(f"{count} subscriptions were to get a message each, and {found.whole} got it")
    for queue, message in zip(queues, stored, strict=True):
        for number in (0, each - 1):
            check_checkpoints(setup.client, queue.name, f"idle{number}", {message.partition: [int(message.id)]})
    return rated("idle", setup, count, found.last_ns - begun)


@contextmanager
def _sleepers(setup: Setup, queues: list[Queue], each: int) -> Iterator[Child]:
    task = Task(setup.zookeeper, [queue.name for queue in queues], each, 1)
    sleepers = Child("sleepers", task)
    try:
        sleepers.ready()
        yield sleepers
    finally:
        sleepers.kill()


def _workers(client: Client) -> int:
    """The partitions of subscriptions that all hosts serve."""
    found = 0
    for host in client.hosts():
        with urllib.request.urlopen(f"http://{host.address}:{host.http_port}/metrics", timeout=60) as page:
            told = re.search(rb"^hoot_workers (\S+)$", page.read(), re.MULTILINE)
        found += int(float(told[1])) if told else 0
    return found
