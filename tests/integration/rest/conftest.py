"""One `hoot serve` for all tests of a file; each test has a namespace of its own there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delivery.embedded import EmbeddedZooKeeper
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.several import Several, several
from tests.topics import Topics

pytestmark = pytest.mark.integration


@contextmanager
def several_on(zookeeper: EmbeddedZooKeeper, folder: Path, count: int) -> Iterator[Several]:
    """So many hosts of their own, as processes."""
    address = f"{zookeeper.address}/rest-{secrets.token_hex(6)}"
    with ZooKeeperClient(address) as zk:
        catalog = open_catalog(zk)
        catalog.ensure_layout()
        with several(address, catalog, folder, count) as running:
            yield running


@pytest.fixture(scope="module")
def hosts(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """A host, as a process. Tests that want another one start it."""
    with several_on(zookeeper, tmp_path_factory.mktemp("rest"), 1) as running:
        yield running


@pytest.fixture
def namespace() -> str:
    return f"ns_{secrets.token_hex(4)}"


@pytest.fixture
def topics(hosts: Several, namespace: str) -> Iterator[Topics]:
    """A client of the first host, in a namespace that nobody has used."""
    client = client_of(hosts, 0, namespace)
    yield client
    client.close()


def client_of(hosts: Several, number: int, namespace: str) -> Topics:
    host = hosts.hosts[number]
    assert host.http_port is not None
    return Topics(host.address, host.http_port, namespace)
