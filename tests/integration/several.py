"""Several region hosts on one ZooKeeper and one data folder, a publisher and a subscriber, and what both noted."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from delivery import PublishedMessage, connect
from delivery.local import HostProcess
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import HostRecord
from delivery.rpc.blocking import BlockingConnection
from subscriber import Event, Message, Subscriber
from tests.integration.background import Background
from tests.integration.embedded import NEVER, eventually
from tests.integration.engine import SESSION_SECONDS

_EVERY_SECONDS = 0.005


class Several:
    """Region hosts, each a process; `hosts` is in the order of their starts."""

    def __init__(self, zookeeper: str, catalog: Catalog, folder: Path, *options: str) -> None:
        self.zookeeper, self.catalog = zookeeper, catalog
        self._folder = folder
        self._options = ("--session-timeout", f"{SESSION_SECONDS:g}s", *options)
        self.processes: list[HostProcess] = []
        self.hosts: list[HostRecord] = []

    def start(self) -> HostRecord:
        """One more host."""
        before = {host.host for host in self.catalog.hosts()}
        log = self._folder / f"host-{len(self.processes)}.log"
        process = HostProcess(self.zookeeper, self._folder / "data", *self._options, log=log)
        self.processes.append(process)
        process.start()
        (found,) = [host for host in self.catalog.hosts() if host.host not in before]
        self.hosts.append(found)
        return found

    def connect(self, number: int) -> BlockingConnection:
        return BlockingConnection(self.hosts[number].address, self.hosts[number].port)

    def counts(self, queue: str) -> list[int]:
        """How many partitions of the queue each host owns, by ZooKeeper."""
        owners = [record.host for record in self.catalog.owners(queue).values()]
        return [owners.count(host.host) for host in self.hosts]

    def owner(self, queue: str, partition: int) -> int:
        """Which of the hosts owns it."""
        record = self.catalog.partition(queue, partition)[0]
        assert record is not None
        return [host.host for host in self.hosts].index(record.host)


@contextlib.contextmanager
def several(zookeeper: str, catalog: Catalog, folder: Path, count: int, *options: str) -> Iterator[Several]:
    """`count` hosts; all are killed at the end."""
    found = Several(zookeeper, catalog, folder, *options)
    try:
        for _ in range(count):
            found.start()
        eventually(lambda: all(_known_to(host) == count for host in found.hosts), "each host knows of all")
        yield found
    finally:
        for process in found.processes:
            process.kill()


def _known_to(host: HostRecord) -> int:
    """How many hosts that one knows."""
    with urlopen(f"http://{host.address}:{host.http_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return round(next(float(line.split()[1]) for line in lines if line.startswith("hoot_hosts ")))


class Watcher:
    """A subscriber in this process: when which message came to its callback, and the events it was told of."""

    def __init__(self, zookeeper: str, queue: str, **options: Any) -> None:
        self.seen: list[tuple[float, int, int]] = []
        self.events: list[Event] = []
        self._subscriber = Subscriber("watcher", zookeeper)
        self._subscriber.on_event(self.events.append)
        self._subscriber.subscribe(queue, start="earliest", **options).listener(self._note)

    def _note(self, message: Message) -> None:
        self.seen.append((time.monotonic(), message.partition, message.number))

    def __enter__(self) -> Self:
        self._subscriber.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._subscriber.stop()

    def ids(self) -> dict[int, list[int]]:
        """Per partition the ids of all callbacks, in order."""
        found: dict[int, list[int]] = {}
        for _, partition, number in list(self.seen):
            found.setdefault(partition, []).append(number)
        return found

    def distinct(self) -> int:
        return sum(len(set(ids)) for ids in self.ids().values())

    def in_order(self) -> dict[int, int]:
        """Per partition how many messages came, each behind all before it when it came first."""
        first = {partition: list(dict.fromkeys(ids)) for partition, ids in self.ids().items()}
        assert all(ids == sorted(ids) for ids in first.values())
        return {partition: len(ids) for partition, ids in first.items()}

    def longest_pause(self, partition: int, since: float) -> float:
        """Between two callbacks of a partition, in seconds, the first one before `since` included."""
        times = [at for at, number, _ in self.seen if number == partition]
        times = [at for at in times if at < since][-1:] + [at for at in times if at >= since]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


class Steady(Background):
    """Publishes one small message to each partition every few milliseconds, and waits for none."""

    def __init__(self, zookeeper: str, queue: str, partitions: int) -> None:
        super().__init__()
        self.stored: list[PublishedMessage] = []
        """Filled when the block ends."""
        self._zookeeper, self._queue, self._partitions = zookeeper, queue, partitions

    def work(self) -> None:
        with connect(self._zookeeper) as client, client.queue(self._queue).publisher(linger_ms=0) as publisher:
            receipts = []
            while not self._stop.is_set():
                receipts += [publisher.put(b"x", partition=number) for number in range(self._partitions)]
                NEVER.wait(_EVERY_SECONDS)
            self.stored = [receipt.result(60) for receipt in receipts]
