"""A region host in its own process, and a client and a queue on it, for all tests of this folder."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from delivery import Client, Queue, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.local import HostProcess


@pytest.fixture(scope="package")
def address(zookeeper: EmbeddedZooKeeper) -> str:
    return f"{zookeeper.address}/client-{secrets.token_hex(6)}"


@pytest.fixture(scope="package")
def host(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    process = HostProcess(address, tmp_path_factory.mktemp("host") / "data", "--session-timeout", "2s")
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="package")
def client(address: str, host: HostProcess) -> Iterator[Client]:
    with connect(address) as connected:
        yield connected


@pytest.fixture
def queue(client: Client) -> Iterator[Queue]:
    """Two partitions."""
    made = client.create_queue(f"orders-{secrets.token_hex(4)}", partitions=2, body_bytes_max=2000)
    yield made
    if made.name in client.queues():
        client.delete_queue(made.name)
