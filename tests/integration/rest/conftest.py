"""One `hoot serve` for all tests of a file; each test has a namespace of its own there."""

from __future__ import annotations

import base64
import http.client
import json
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from delivery import Client, connect
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


def address_of(client: Client) -> tuple[str, int]:
    (host,) = client.hosts()
    return host.address, host.port


class Service:
    """A client of `/v1/transactions` on one host."""

    def __init__(self, hosts: Several, number: int) -> None:
        host = hosts.hosts[number]
        assert host.http_port is not None
        self._connection = http.client.HTTPConnection(host.address, host.http_port, timeout=60)

    def call(self, method: str, path: str = "", body: object = None) -> tuple[int, Any]:
        sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, f"/v1/transactions{path}", sent, {"content-type": "application/json"})
        with self._connection.getresponse() as response:
            answer = response.read()
            return response.status, json.loads(answer) if answer else None

    def begin(self, timeout: float = 60) -> tuple[int, bytes]:
        """A write pointer, and the transaction as polls take it."""
        status, found = self.call("POST", body={"timeout": timeout})
        assert status == 200, found
        return found["transactionWritePointer"], base64.b64decode(found["transaction"])

    def look(self) -> bytes:
        return base64.b64decode(self.call("GET")[1]["transaction"])

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def service(hosts: Several) -> Iterator[Service]:
    with closing(Service(hosts, 0)) as found:
        yield found


@pytest.fixture
def client(hosts: Several) -> Iterator[Client]:
    with connect(hosts.zookeeper) as found:
        yield found
