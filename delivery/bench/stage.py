"""What the cases of `hoot bench` stand on: a queue, somebody who publishes, subscribers as processes, and the check."""

from __future__ import annotations

import random
import re
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import msgspec

from delivery.bench.checking import BenchFailed, check_checkpoints, check_delivered, delivered, published
from delivery.bench.children import Child
from delivery.bench.consumer import Outcome, Task
from delivery.bench.raw import Raw
from delivery.bench.report import Result, result
from delivery.bench.schedule import Schedule
from delivery.bench.tallies import partitions_beside
from delivery.client import Client, Queue
from delivery.client.publisher import Publisher, Receipt
from delivery.metastore.policy import RetryPolicy
from delivery.model import Durability

_KEYS_EACH: Final = 10
"""Keys for each partition, where messages have keys."""
ATTACH_SECONDS: Final = 600.0
"""For thousands of partitions or subscriptions to be served."""


class Plan(msgspec.Struct):
    """What all cases share."""

    size: int
    messages: int
    durability: Durability = "fsync"
    folder: Path = Path()
    """For the files of this command alone."""


class Setup(Plan, kw_only=True):
    """What the cases with an engine share. What one of them does not use has its default."""

    client: Client
    zookeeper: str
    host_pid: int | None = None
    """The process of the region hosts, or what runs them; None for an engine that is not the bench's own."""
    partitions: int = 1
    rate: float = 1000.0
    subscriptions: int = 1
    selectivity: float = 0.01
    expression: str | None = None
    apart: bool = False
    topics: int = 100
    batches: bool = False
    batch: int | None = None
    """Messages in a batch of the publisher at most; None for its own limit."""
    keyed: bool = False
    by: str = "put"
    callers: int = 1
    members: int = 2
    failing: float = 0.0
    pause: float = 0.1
    slow: float = 0.1
    quiet: float = 30.0
    per_request: int = 1
    connections: int = 1
    raw: Raw | None = None
    """What to measure beside, where the messages are in HBase."""


def rated(case: str, setup: Setup, messages: int, nanoseconds: int) -> Result:
    """A case's rate, with what the engine was."""
    found = result(case, setup.size, messages, nanoseconds / 1e9, setup.durability)
    processes = len(setup.client.hosts())
    return msgspec.structs.replace(found, batch=setup.batch, partitions=setup.partitions, processes=processes)


def beside_raw(setup: Setup, queue: Queue, found: Result) -> Result:
    """The result, with its ratio to happybase by itself where the messages are in HBase."""
    return (
        found if setup.raw is None else setup.raw.beside(found, setup.client.queue_record(queue.name), setup.messages)
    )


# -- queues and publishers


@contextmanager
def queue_for(setup: Setup) -> Iterator[Queue]:
    """A queue of its own for one run, which is deleted in the end."""
    name = f"bench-{random.getrandbits(48):012x}"
    setup.client.create_queue(name, partitions=setup.partitions, durability=setup.durability)
    try:
        _spread(setup, name)
        yield setup.client.queue(name)
    finally:
        setup.client.delete_queue(name)


def _spread(setup: Setup, queue: str) -> None:
    """Deal the partitions out to the hosts: by themselves, a few may well come to be with one host."""
    hosts = [host for host in setup.client.hosts() if not host.draining]
    for partition in range(setup.partitions if len(hosts) > 1 else 0):
        setup.client.placement.move(queue, partition, hosts[partition % len(hosts)])


def publisher_for(setup: Setup, queue: Queue) -> Publisher:
    """A publisher with batches as the setup has them. Whoever gets it closes it."""
    return queue.publisher() if setup.batch is None else queue.publisher(batch_messages=setup.batch)


def publish_all(setup: Setup, queue: Queue) -> list[Receipt]:
    """All messages, as fast as they go."""
    with publisher_for(setup, queue) as publisher:
        return put_all(setup, publisher, setup.messages)


def put_all(setup: Setup, publisher: Publisher, messages: int) -> list[Receipt]:
    """A `put` for each of so many messages."""
    body, put = random.randbytes(setup.size), publisher.put
    if setup.keyed:
        keys = [b"%d" % number for number in range(setup.partitions * _KEYS_EACH)]
        return [put(body, key=key) for key in islice(cycle(keys), messages)]
    return [put(body) for _ in range(messages)]


def put_paced(
    setup: Setup, publisher: Publisher, numbers: Iterable[int], *, in_turn: bool = False
) -> Iterator[Receipt]:  # fmt: skip
    """A message for each of the numbers, at the setup's rate, with the time when it was due in its first 8 bytes.

    `in_turn` gives each partition the same share.
    """
    padding = bytes(max(0, setup.size - 8))
    schedule = Schedule(setup.rate)
    for number in numbers:
        due = schedule.wait(number)
        partition = number % setup.partitions if in_turn else None
        yield publisher.put(due.to_bytes(8, "little") + padding, partition=partition)


def publish_paced(setup: Setup, queue: Queue) -> list[Receipt]:
    """All messages at the setup's rate."""
    with queue.publisher(linger_ms=0) as publisher:
        return list(put_paced(setup, publisher, range(setup.messages)))


# -- subscribers


class Consumer(Child):
    """The process of a subscriber (delivery.bench.consumer)."""

    def __init__(self, task: Task) -> None:
        """See Child."""
        super().__init__("consumer", task)
        self.task = task

    def outcome(self) -> Outcome:
        """What it received, when that is all it expected. Raises BenchFailed."""
        return self.tell(Outcome)

    def stop(self) -> Outcome:
        """Have it detach, and tell what it has received."""
        self.terminate()
        return self.outcome()

    @property
    def ids(self) -> Path:
        """Where it leaves the ids that it received."""
        return Path(self.task.ids_file)

    def delivered(self) -> dict[int, list[int]]:
        """What it received, by partition."""
        return delivered(self.ids, partitions_beside(self.ids) if self.task.spread else None)


@contextmanager
def consuming(
    setup: Setup, queue: Queue, start: str, *, name: str = "bench", member: str = "", expected: int | None = None,
    retry: RetryPolicy | None = None, spread: bool = False,
    **task_fields: Any,  # noqa: ANN401 - fields of Task
) -> Iterator[Consumer]:  # fmt: skip
    """A subscriber that has been started, and is killed in the end."""
    task = Task(
        zookeeper=setup.zookeeper, queue=queue.name, name=name, member=member,
        expected=setup.messages if expected is None else expected,
        ids_file=str(setup.folder / f"{name}{member}.ids"), start=start, retry=retry,
        batches=setup.batches, spread=spread or setup.partitions > 1, **task_fields,
    )  # fmt: skip
    consumer = Consumer(task)
    try:
        yield consumer
    finally:
        consumer.kill()


@contextmanager
def attached(setup: Setup, queue: Queue, start: str, **more: Any) -> Iterator[Consumer]:  # noqa: ANN401 - as above
    """A subscriber that is attached."""
    with consuming(setup, queue, start, **more) as consumer:
        consumer.ready()
        yield consumer


def firsts(setup: Setup) -> int:
    """How many messages `put_first` puts: of one partition alone the first message is no time to speak of."""
    return setup.partitions if setup.partitions > 1 else 0


def put_first(setup: Setup, queue: Queue) -> list[Receipt]:
    """A message for each partition, when all have a worker. They are stored: every partition has its files."""
    if not firsts(setup):
        return []
    wait_until(lambda: workers(setup.client) >= setup.partitions, "every partition is served", ATTACH_SECONDS)
    with queue.publisher() as publisher:
        return [publisher.put(bytes(setup.size), partition=partition) for partition in range(setup.partitions)]


@contextmanager
def attached_all(setup: Setup, queue: Queue) -> Iterator[list[Consumer]]:
    """As many subscriptions as the setup says, with a process each; all start at the same time."""
    with ExitStack() as stack:
        consumers = [
            stack.enter_context(consuming(setup, queue, "latest", name=f"bench{number}"))
            for number in range(setup.subscriptions)
        ]
        for consumer in consumers:
            consumer.ready()
        yield consumers


# -- the check


def check(setup: Setup, queue: Queue, receipts: Sequence[Receipt], consumer: Consumer) -> None:
    """Raise BenchFailed unless exactly what was published arrived, in order, and the checkpoints are at the end."""
    wanted = published(receipts)
    check_delivered(wanted, consumer.delivered())
    check_checkpoints(setup.client, queue.name, consumer.task.name, wanted)


def workers(client: Client) -> int:
    """The partitions of subscriptions that all hosts serve."""
    found = 0
    for host in client.hosts():
        with urllib.request.urlopen(f"http://{host.address}:{host.http_port}/metrics", timeout=60) as page:
            told = re.search(rb"^hoot_workers (\S+)$", page.read(), re.MULTILINE)
        found += int(float(told[1])) if told else 0
    return found


def wait_until(done: Callable[[], bool], what: str, seconds: float = 60.0, *, pause: float = 0.05) -> None:
    """Ask again and again. Raises BenchFailed when it takes longer."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise BenchFailed(f"not within {seconds:g} s: {what}")
        time.sleep(pause)
