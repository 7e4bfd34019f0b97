"""The cases of `hoot bench`, each a function from a Setup to a Result. Every one checks what was delivered first."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from delivery.batch import encode, headers_in, open_batch
from delivery.bench.checking import BenchFailed, check_checkpoints, check_delivered, delivered, published
from delivery.bench.consumer import Outcome, Task, partitions_beside
from delivery.bench.filtering import Mix
from delivery.bench.report import Result, result, with_latencies
from delivery.client import Client, Queue
from delivery.client.accumulator import ROW_BYTES, Limits
from delivery.client.publisher import Receipt
from delivery.model import Durability, Message


class Setup(msgspec.Struct):
    """What all cases share."""

    client: Client
    zookeeper: str
    folder: Path
    size: int
    messages: int
    durability: Durability
    partitions: int = 1
    rate: float = 1000.0
    subscriptions: int = 1
    selectivity: float = 0.01
    expression: str | None = None
    apart: bool = False
    batches: bool = False
    per_request: int = 1
    connections: int = 32
    host_pid: int = 0
    """Of the process of the hosts, where they were started for this."""


def publish(setup: Setup) -> Result:
    """The publisher alone: `put` per message until every one is acknowledged."""
    with _queue(setup) as queue:
        begun = time.monotonic_ns()
        _publish(setup, queue)
        return _rate("publish", setup, setup.messages, time.monotonic_ns() - begun)


def live(setup: Setup) -> Result:
    """Publisher and subscriber at once, from the first `put` to the last callback; acknowledged and checkpointed."""
    with _queue(setup) as queue, _consumer(setup, queue, "latest") as outcome:
        begun = time.monotonic_ns()
        receipts = _publish(setup, queue)
        found = outcome()
        _check(setup, queue, receipts)
        return _rate("live", setup, setup.messages, found.last_ns - begun)


def drain(setup: Setup) -> Result:
    """A backlog that is there already, from the moment of attaching to the last callback."""
    with _queue(setup) as queue:
        receipts = _publish(setup, queue)
        with _consumer(setup, queue, "earliest") as outcome:
            found = outcome()
            _check(setup, queue, receipts)
            return _rate("drain", setup, setup.messages, found.last_ns - found.attached_ns)


def latency(setup: Setup) -> Result:
    """From the moment a message was due at a steady rate to its callback; late sends count against it."""
    with _queue(setup) as queue, _consumer(setup, queue, "latest", latency=True) as outcome:
        begun = time.monotonic_ns()
        receipts = _publish_paced(setup, queue)
        found = outcome()
        _check(setup, queue, receipts)
        rated = _rate("latency", setup, setup.messages, found.last_ns - begun)
        warm = len(found.latencies_ns) // 10
        return with_latencies(rated, found.latencies_ns[warm:])


def fanout(setup: Setup) -> Result:
    """Every message to each of several subscriptions, one process each; the rate counts deliveries."""
    with _queue(setup) as queue, _consumers(setup, queue) as outcomes:
        begun = time.monotonic_ns()
        receipts = _publish(setup, queue)
        found = outcomes()
        for number in range(setup.subscriptions):
            _check(setup, queue, receipts, name=f"bench{number}")
        last = max(one.last_ns for one in found)
        return _rate("fanout", setup, setup.messages * setup.subscriptions, last - begun)


def filter(setup: Setup) -> Result:  # noqa: A001 - the case's name
    """A filter that leaves a part of a backlog; the rate is that of scanning, from the first message taken to the last.

    So it leaves out how long attaching takes, which is as long for a filter as without one.
    """
    mix = Mix(setup.size, setup.messages, setup.selectivity, setup.expression, setup.apart)
    with _queue(setup) as queue:
        receipts, scanned = mix.publish(queue)
        task: dict[str, Any] = {"topics": mix.topics, "filter": setup.expression, "from_first": True}
        with _consumer(setup, queue, "earliest", expected=len(receipts), **task) as outcome:
            found = outcome()
            _check(setup, queue, receipts)
            return _rate("filter", setup, scanned, max(1, found.last_ns - found.first_ns))


def floor(size: int, messages: int) -> Result:
    """The limit: the same packed batches decoded and the callback called in one process, no network and no disk."""
    limits = Limits()
    count = max(1, min(limits.batch_messages, limits.batch_bytes // (size + ROW_BYTES)))
    batch = encode([(bytes(size), None, "", b"")] * count, 0)
    ids = array("q")

    def callback(message: Message) -> None:
        ids.append(message.number)

    begun = time.monotonic_ns()
    for _ in range(-(-messages // count)):
        for at, header in headers_in(batch):
            for message in open_batch(batch[at : at + header.length], header).messages("bench"):
                callback(message)
    return result("floor", size, len(ids), (time.monotonic_ns() - begun) / 1e9)


CASES: dict[str, Callable[[Setup], Result]] = {
    "publish": publish, "live": live, "drain": drain, "latency": latency, "fanout": fanout, "filter": filter,
}  # fmt: skip


def _rate(case: str, setup: Setup, messages: int, nanoseconds: int) -> Result:
    rated = result(case, setup.size, messages, nanoseconds / 1e9, setup.durability)
    return msgspec.structs.replace(rated, partitions=setup.partitions, processes=len(setup.client.hosts()))


@contextmanager
def _queue(setup: Setup) -> Iterator[Queue]:
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


def _publish(setup: Setup, queue: Queue) -> list[Receipt]:
    body = random.randbytes(setup.size)
    with queue.publisher() as publisher:
        put = publisher.put
        return [put(body) for _ in range(setup.messages)]


def _publish_paced(setup: Setup, queue: Queue) -> list[Receipt]:
    padding = bytes(max(0, setup.size - 8))
    interval, receipts = 1e9 / setup.rate, []
    with queue.publisher(linger_ms=0) as publisher:
        begun = time.monotonic_ns() + 100_000_000
        for number in range(setup.messages):
            due = begun + int(number * interval)
            if (early := due - time.monotonic_ns()) > 0:
                time.sleep(early / 1e9)
            receipts.append(publisher.put(due.to_bytes(8, "little") + padding))
    return receipts


@contextmanager
def _consumer(
    setup: Setup, queue: Queue, start: str, *, name: str = "bench", expected: int | None = None,
    **task_fields: Any,  # noqa: ANN401 - fields of Task
) -> Iterator[Callable[[], Outcome]]:  # fmt: skip
    task = Task(
        zookeeper=setup.zookeeper, queue=queue.name, name=name, expected=expected or setup.messages,
        ids_file=str(setup.folder / f"{name}.ids"), start=start,
        batches=setup.batches, spread=setup.partitions > 1, **task_fields,
    )  # fmt: skip
    command = [sys.executable, "-m", "delivery.bench.consumer", msgspec.json.encode(task).decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            _read_line(process)
            yield lambda: msgspec.json.decode(_read_line(process), type=Outcome)
        finally:
            process.kill()


@contextmanager
def _consumers(setup: Setup, queue: Queue) -> Iterator[Callable[[], list[Outcome]]]:
    with ExitStack() as stack:
        waits = [
            stack.enter_context(_consumer(setup, queue, "latest", name=f"bench{number}"))
            for number in range(setup.subscriptions)
        ]
        yield lambda: [wait() for wait in waits]


def _read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise BenchFailed("the subscriber's process ended early; what it said is above")
    return line


def _check(setup: Setup, queue: Queue, receipts: list[Receipt], *, name: str = "bench") -> None:
    """Raise BenchFailed unless exactly what was published arrived, in order, and the checkpoints are at the end."""
    wanted = published(receipts)
    ids = setup.folder / f"{name}.ids"
    check_delivered(wanted, delivered(ids, partitions_beside(ids) if setup.partitions > 1 else None))
    check_checkpoints(setup.client, queue.name, name, wanted)
