"""Many partitions on three hosts: how long they take to be owned, and to be taken over from a host that is killed.

    python -m tests.bench.scale --partitions 30000

Starts an embedded ZooKeeper and the hosts on one data folder in /tmp, and a subscription to the whole queue, so that
every partition has a worker. Prints a line for each step: seconds, partitions of each host, their resident memory, and
the requests that ZooKeeper got. Nothing is asserted: the figures are for the README.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from delivery import connect
from delivery.client import Client, OwnedBy
from delivery.embedded import EmbeddedZooKeeper
from delivery.local import HostProcess
from subscriber import Subscriber
from tests.integration.embedded import NEVER

QUEUE = "wide"
LIMIT_SECONDS = 1800.0


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
        tell = Teller(client, zookeeper.address, hosts)
        tell("started")
        client.create_queue(QUEUE, partitions=given.partitions, durability="os")
        subscriber = Subscriber("all", zookeeper=zookeeper.address)
        subscriber.subscribe(QUEUE, start="earliest", listener=lambda _: None)
        stack.enter_context(subscriber)
        tell("all owned", given.partitions)
        last = max(client.hosts(), key=lambda host: host.started_ms)
        hosts.pop().kill()
        tell("one host killed, all owned again", given.partitions, killed=last.host)


class Teller:
    """Waits for a number of partitions to be owned, and prints what that took."""

    def __init__(self, client: Client, zookeeper: str, hosts: Sequence[HostProcess]) -> None:
        self._client, self._hosts = client, hosts
        host, _, port = zookeeper.partition("/")[0].rpartition(":")
        self._zookeeper = (host, int(port))

    def __call__(self, what: str, partitions: int = 0, killed: str = "") -> None:
        """Return when so many partitions have a living owner, which is not the killed one."""
        begun, asked = time.monotonic(), self._requests()
        while True:
            looked = self._requests()
            owners = Counter(one.host.host for one in self._owners(partitions) if one.host is not None)
            del owners[killed]
            asked += self._requests() - looked  # not those of this very look
            if owners.total() >= partitions:
                break
            assert time.monotonic() < begun + LIMIT_SECONDS, f"not within {LIMIT_SECONDS} s: {what}"
            NEVER.wait(0.5)
        seconds, requests = time.monotonic() - begun, self._requests() - asked
        memory = [_resident_mib(host.pid) for host in self._hosts]
        print(f"{what}: {seconds:.1f} s, partitions {sorted(owners.values())}, host memory {memory} MiB,"
              f" {requests} requests to ZooKeeper", flush=True)  # fmt: skip

    def _owners(self, partitions: int) -> list[OwnedBy]:
        return self._client.placement.owners(QUEUE) if partitions else []

    def _requests(self) -> int:
        """ZooKeeper's own count of what it received."""
        with socket.create_connection(self._zookeeper, 10) as connection:
            connection.sendall(b"srvr")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        return int(answer.partition(b"Received: ")[2].split()[0])


def _resident_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


if __name__ == "__main__":
    main()
