"""Moving partitions between two hosts: for how long a subscriber hears nothing of a partition that is on its way.

    python -m tests.bench.moves                                    # 4 partitions, quiet, then at 50,000 messages/s
    python -m tests.bench.moves --partitions 200 --drains 4        # a host gives all it has away, some times

Starts an embedded ZooKeeper and the hosts on one data folder in /tmp; who publishes and who subscribes are processes of
their own. Quiet is a message to each partition every few milliseconds. A pause is the longest time between two
callbacks of the partition in the second around its move, so it cannot be below what lies between two of them anyhow,
which is printed, too: as much of partitions that were not moved then. Nothing is asserted here; what comes again is
counted. The machine needs a core to spare, or it is its pauses that are measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import msgspec

from delivery import connect
from delivery.client import Client
from delivery.embedded import EmbeddedZooKeeper
from delivery.local import HostProcess
from delivery.metastore.records import HostRecord
from subscriber import Message, Subscriber
from tests.integration.embedded import NEVER

QUEUE = "moving"
NOTED_SECONDS = 0.005
"""Shorter times between two callbacks are not kept."""
STEP_SECONDS = 0.005
SETTLE_SECONDS = 1.0
LIMIT_SECONDS = 120.0

_SPAWN = multiprocessing.get_context("spawn")


class Heard(msgspec.Struct):
    """What the subscriber noted: (partition, from, to) without a callback, and (partition, when) of repeated ones."""

    silences: list[tuple[int, float, float]] = []
    repeated: list[tuple[int, float]] = []


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--moves", type=int, default=12)
    parser.add_argument("--drains", type=int, default=0, help="of a host, instead of moves")
    parser.add_argument("--rates", type=int, nargs="*", default=[0, 50_000], help="messages a second; 0: quiet")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hoot-moves-") as folder, ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(Path(folder) / "zookeeper"))
        for number in range(2):
            host = HostProcess(zookeeper.address, Path(folder) / "data", "--set", "rebalance_seconds=0",
                               log=Path(folder) / f"host-{number}.log")  # fmt: skip
            stack.callback(host.kill)
            host.start()
        client = stack.enter_context(connect(zookeeper.address, deadline=60.0))
        client.create_queue(QUEUE, partitions=given.partitions, durability="os")
        for rate in given.rates:
            with (
                _child(_listen, zookeeper.address) as heard,
                _child(_publish, zookeeper.address, given.partitions, rate),
            ):
                NEVER.wait(SETTLE_SECONDS * 2)
                moves = _drains(client, given.drains) if given.drains else _moves(client, given.partitions, given.moves)
            _tell(f"{rate:,} messages/s" if rate else "quiet", moves, heard())


Move = tuple[int, float, float]
"""A partition, when it was asked for, and when it was done."""


def _moves(client: Client, partitions: int, times: int) -> list[Move]:
    done = []
    for number in range(times):
        begun = time.monotonic()
        partition = number % partitions
        owner = client.placement.owner(QUEUE, partition).host
        client.placement.move(QUEUE, partition, next(host for host in client.hosts() if not _same(host, owner)))
        done.append((partition, begun, time.monotonic()))
        NEVER.wait(SETTLE_SECONDS)
    return done


def _drains(client: Client, times: int) -> list[Move]:
    done: list[Move] = []
    for number in range(times):
        host = sorted(client.hosts(), key=lambda one: one.started_ms)[number % 2]
        mine = [one.partition for one in client.placement.owners(QUEUE) if _same(host, one.host)]
        begun = time.monotonic()
        client.placement.drain(host)
        while any(_same(host, one.host) for one in client.placement.owners(QUEUE)):
            assert time.monotonic() < begun + LIMIT_SECONDS, "the host is not empty"
            NEVER.wait(0.05)
        print(f"drained {len(mine)} partitions in {time.monotonic() - begun:.2f} s", flush=True)
        done += [(partition, begun, time.monotonic()) for partition in mine]
        NEVER.wait(SETTLE_SECONDS)
        client.placement.drain(host, draining=False)
    return done


def _same(host: HostRecord, other: HostRecord | None) -> bool:
    """By the id: the rest of a record tells of the host's load."""
    return other is not None and other.host == host.host


def _tell(what: str, moves: Sequence[Move], heard: Heard) -> None:
    def longest(partition: int, begun: float, ended: float) -> float:
        ended += SETTLE_SECONDS
        pauses = [
            until - since
            for number, since, until in heard.silences
            if number == partition and until >= begun and since <= ended
        ]
        return max(pauses, default=NOTED_SECONDS) * 1000

    pauses = sorted(longest(*move) for move in moves)
    moving = {(begun, ended): {one[0] for one in moves if one[1] == begun} for _, begun, ended in moves}
    still = {number for number, _, _ in heard.silences}
    beside = sorted(longest(number, *when) for when, moved in moving.items() for number in still - moved)
    again = sorted(sum(n == p and b <= at <= e + SETTLE_SECONDS for n, at in heard.repeated) for p, b, e in moves)
    print(f"{what}: {len(pauses)} moves, pause {_figures(pauses)}; beside {_figures(beside)};"
          f" came again per move: median {median(again):.0f}, max {again[-1]}", flush=True)  # fmt: skip


def _figures(ordered: Sequence[float]) -> str:
    if not ordered:
        return "none"
    p99 = ordered[int(len(ordered) * 0.99)]
    return f"median {median(ordered):.0f} ms, p99 {p99:.0f} ms, max {ordered[-1]:.0f} ms"


@contextmanager
def _child(work: Callable[..., None], *args: object) -> Iterator[Callable[[], Heard]]:
    """A process that works until the context ends; afterwards, what this gives returns what it found."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=work, args=(there, *args), daemon=True)
    process.start()
    assert here.poll(LIMIT_SECONDS), "the child did not begin"
    here.recv()
    found: list[Heard] = []
    try:
        yield lambda: found[0]
    finally:
        here.send(None)
        if here.poll(LIMIT_SECONDS):
            found.append(msgspec.json.decode(here.recv(), type=Heard))
        process.join(LIMIT_SECONDS)


def _listen(parent: Connection, zookeeper: str) -> None:
    heard = Heard()
    last: dict[int, tuple[float, int]] = {}

    def note(message: Message) -> None:
        now, partition, number = time.monotonic(), message.partition, message.number
        before, highest = last.get(partition, (now, 0))
        if now - before > NOTED_SECONDS:
            heard.silences.append((partition, before, now))
        if number <= highest:
            heard.repeated.append((partition, now))
        last[partition] = (now, max(highest, number))

    subscriber = Subscriber("listening", zookeeper)
    subscriber.subscribe(QUEUE, start="latest", listener=note)
    with subscriber:
        parent.send(None)
        parent.recv()
        NEVER.wait(SETTLE_SECONDS)
    parent.send(msgspec.json.encode(heard))


def _publish(parent: Connection, zookeeper: str, partitions: int, rate: int) -> None:
    with connect(zookeeper) as client, client.queue(QUEUE).publisher(linger_ms=0 if not rate else 5) as publisher:
        parent.send(None)
        begun, sent = time.monotonic(), 0
        while not parent.poll(STEP_SECONDS if rate else STEP_SECONDS * max(1, partitions // 10)):
            due = int((time.monotonic() - begun) * rate) if rate else sent + partitions
            for number in range(sent, due):
                publisher.put(b"x" * 100, partition=number % partitions)
            sent = due
    parent.send(msgspec.json.encode(Heard()))


if __name__ == "__main__":
    main()
