"""What fault tests share: an engine of child processes, a recording subscriber's process, and the evaluation after."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from delivery.embedded import EmbeddedZooKeeper
from delivery.local import HostProcess, LocalEngine
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.embedded import ROOT
from tests.integration.recorder import PARTITION_SHIFT, Orders

SESSION_SECONDS = 2.0
"""Of hosts under test, so that a killed one is replaced soon."""


class Engine(Protocol):
    """A region host, and where its ZooKeeper is."""

    @property
    def address(self) -> str: ...
    @property
    def host(self) -> HostProcess: ...


class Hosted(NamedTuple):
    """The engine that `hosted` starts."""

    address: str
    host: HostProcess


@contextmanager
def hosted(zookeeper: EmbeddedZooKeeper, folder: Path, *options: str) -> Iterator[Hosted]:
    """A region host as a process, with a folder of its own in a ZooKeeper that runs for others, too."""
    address = f"{zookeeper.address}/engine-{secrets.token_hex(6)}"
    timeout = ("--session-timeout", f"{SESSION_SECONDS:g}s")
    host = HostProcess(address, folder / "data", *timeout, *options, log=folder / "host.log")
    try:
        host.start()
        yield Hosted(address, host)
    finally:
        host.stop()


@contextmanager
def engine(folder: Path, *options: str) -> Iterator[LocalEngine]:
    """The same with a ZooKeeper of its own, for tests that do something to it: to start one takes two seconds."""
    with LocalEngine(folder, "--session-timeout", f"{SESSION_SECONDS:g}s", *options) as running:
        yield running


class SubscriberProcess:
    """A process of a module that takes `orders` as JSON and says `ready` when it is attached."""

    def __init__(self, module: str, orders: msgspec.Struct) -> None:
        self._module, self._orders = module, orders
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **changes: Any) -> None:
        """Start, or start again; returns when it is attached."""
        self.kill()
        orders = msgspec.structs.replace(self._orders, **changes)
        self.process = subprocess.Popen(
            [sys.executable, "-m", self._module, msgspec.json.encode(orders).decode()],
            stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == b"ready\n", f"the subscriber did not start: {line!r}"

    def kill(self) -> None:
        """kill -9; fine when it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended."""
        return self.process is None or self.process.poll() is not None


class RecordingSubscriber(SubscriberProcess):
    """The process of `recorder`, and what it wrote down."""

    def __init__(self, engine: Engine, queue: str, folder: Path, name: str = "recorder", **orders: Any) -> None:
        self.file = folder / f"{name}.callbacks"
        super().__init__(
            "tests.integration.recorder",
            Orders(zookeeper=engine.address, queue=queue, name=name, file=str(self.file), **orders),
        )

    def ids(self) -> dict[int, list[int]]:
        """Per partition the ids of all callbacks, in order."""
        raw = array("Q")
        if self.file.exists():
            data = self.file.read_bytes()
            raw.frombytes(data[: len(data) // 8 * 8])
        found: dict[int, list[int]] = {}
        for value in raw:
            found.setdefault(value >> PARTITION_SHIFT, []).append(value & ((1 << PARTITION_SHIFT) - 1))
        return found

    def count(self) -> int:
        """Callbacks so far."""
        return self.file.stat().st_size // 8 if self.file.exists() else 0

    def distinct(self) -> int:
        """Messages that reached a callback at least once."""
        return sum(len(set(ids)) for ids in self.ids().values())


def check_delivered(published: dict[int, list[int]], delivered: dict[int, list[int]]) -> int:
    """Assert that every published id was delivered and first deliveries rose; gives the number of duplicates."""
    duplicates = 0
    for partition, ids in published.items():
        got = delivered.get(partition, [])
        assert set(ids) <= set(got), f"partition {partition}: {len(set(ids) - set(got))} acknowledged messages missing"
        first = list(dict.fromkeys(got))
        assert first == sorted(first), f"partition {partition}: first deliveries out of order"
        duplicates += len(got) - len(first)
    return duplicates


def check_checkpoints(
    zookeeper: str, queue: str, name: str, published: dict[int, list[int]], delivered: dict[int, list[int]]
) -> None:
    """Assert that no checkpoint stands beyond a published message that did not reach a callback."""
    with ZooKeeperClient(zookeeper) as client:
        states = open_catalog(client).states(queue, name)
    for partition, state in states.items():
        passed = {number for number in published.get(partition, ()) if number <= state.position}
        missing = passed - set(delivered.get(partition, ()))
        assert not missing, f"partition {partition}: the checkpoint passed {len(missing)} messages without a callback"


def by_partition(messages: Sequence[Any]) -> dict[int, list[int]]:
    """The ids of published messages by partition."""
    found: dict[int, list[int]] = {}
    for message in messages:
        found.setdefault(message.partition, []).append(int(message.id))
    return found
