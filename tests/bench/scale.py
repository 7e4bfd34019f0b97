"""Many partitions on three hosts: how long they take to be served, and to be taken over from a host that is killed.

    python -m tests.bench.scale --partitions 30000

Starts an embedded ZooKeeper and the hosts on one data folder in /tmp, and a subscription to the whole queue, so that
every partition has a worker. Prints a line for each step: seconds, partitions taken and how many a second, the
partitions of each host, resident memory, processor seconds, and the requests that ZooKeeper got. Nothing is asserted
but that all are owned in the end: the figures are for the README. Hosts are asked over HTTP how far they are, which
costs ZooKeeper nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from delivery import connect
from delivery.client import Client
from delivery.embedded import EmbeddedZooKeeper
from delivery.local import HostProcess
from delivery.metastore.records import HostRecord
from subscriber import Subscriber
from tests.integration.embedded import NEVER

QUEUE = "wide"
LIMIT_SECONDS = 1800.0
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=30_000)
    parser.add_argument("--hosts", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hoot-scale-") as folder, ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(Path(folder) / "zookeeper"))
        hosts = [HostProcess(zookeeper.address, Path(folder) / "data", log=Path(folder) / f"host-{number}.log")
                 for number in range(given.hosts)]  # fmt: skip
        for host in hosts:
            stack.callback(host.kill)
            host.start()
        client = stack.enter_context(connect(zookeeper.address, deadline=60.0))
        region = Region(client, zookeeper, hosts)
        region.tell("started", region.look())
        before = region.look()
        client.create_queue(QUEUE, partitions=given.partitions, durability="os")
        subscriber = Subscriber("all", zookeeper=zookeeper.address)
        subscriber.subscribe(QUEUE, start="earliest", listener=lambda _: None)
        stack.enter_context(subscriber)
        region.wait(given.partitions)
        region.tell("all served", before, taken=given.partitions)
        before, gone = region.kill()
        region.wait(given.partitions)
        region.tell("one host killed, all served again", before, taken=gone)
        owned = sum(one.host is not None for one in client.placement.owners(QUEUE))
        assert owned == given.partitions, f"{owned} of {given.partitions} partitions have an owner"


class Look(msgspec.Struct, frozen=True):
    """What was seen at a moment."""

    at: float
    requests: int
    """That ZooKeeper has received."""
    hosts_seconds: float
    """Processor time of all hosts that live."""
    zookeeper_seconds: float


class Region:
    """The processes under test, and what they say of themselves."""

    def __init__(self, client: Client, zookeeper: EmbeddedZooKeeper, hosts: Sequence[HostProcess]) -> None:
        """`hosts` were started one after another."""
        records = sorted(client.hosts(), key=lambda record: record.started_ms)
        self._hosts = dict(zip(hosts, records, strict=True))
        self._zookeeper = zookeeper

    def look(self) -> Look:
        """The moment's totals."""
        spent = sum(processor_seconds(host.pid) for host in self._hosts)
        assert self._zookeeper.pid is not None
        return Look(time.monotonic(), self._requests(), spent, processor_seconds(self._zookeeper.pid))

    def wait(self, partitions: int) -> None:
        """Return when so many partitions are served."""
        end = time.monotonic() + LIMIT_SECONDS
        while sum(map(_workers, self._hosts.values())) < partitions:
            assert time.monotonic() < end, f"not within {LIMIT_SECONDS} s"
            NEVER.wait(1.0)  # to be asked costs a host as much as a hundred claims

    def kill(self) -> tuple[Look, int]:
        """End the last host; when that was, and how many partitions it had."""
        host, record = self._hosts.popitem()
        had, begun = _workers(record), self.look()
        host.kill()
        return begun, had

    def tell(self, what: str, since: Look, taken: int = 0) -> None:
        """Print what has passed since a moment, and what is there now."""
        now = self.look()
        seconds, requests = now.at - since.at, now.requests - since.requests
        rates = f" ({taken} taken: {taken / seconds:.0f}/s, {requests / taken:.2f} requests each)" if taken else ""
        assert self._zookeeper.pid is not None
        print(f"{what}: {seconds:.1f} s{rates}, partitions {sorted(map(_workers, self._hosts.values()))},"
              f" host memory {[_resident_mib(host.pid) for host in self._hosts]} MiB,"
              f" ZooKeeper's {_resident_mib(self._zookeeper.pid)} MiB, {requests} requests to it,"
              f" processor seconds: hosts {now.hosts_seconds - since.hosts_seconds:.1f},"
              f" ZooKeeper {now.zookeeper_seconds - since.zookeeper_seconds:.1f}", flush=True)  # fmt: skip

    def _requests(self) -> int:
        """ZooKeeper's own count of what it received."""
        host, _, port = self._zookeeper.address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(b"srvr")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        return int(answer.partition(b"Received: ")[2].split()[0])


def _workers(host: HostRecord) -> int:
    """The partitions that a host serves."""
    with urllib.request.urlopen(f"http://{host.address}:{host.http_port}/metrics", timeout=60) as page:
        found = re.search(rb"^hoot_workers (\S+)$", page.read(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def _resident_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def processor_seconds(pid: int) -> float:
    """Of a process, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    main()
