"""One engine for all tests of the command line, and a queue of one's own in it for each test."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from delivery import Client, connect
from tests.integration.cli.running import Child, Hoot


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A region host with its embedded ZooKeeper; gives ZooKeeper's address."""
    with Child("serve", "--data", str(tmp_path_factory.mktemp("hoot")), "--log-level", "warning") as child:
        yield child.says(r"ZooKeeper: (\S+)")[1]
        assert child.end(signal.SIGTERM) == 0, child.errors


@pytest.fixture
def hoot(engine: str) -> Hoot:
    return Hoot(engine)


@pytest.fixture(scope="session")
def client(engine: str) -> Iterator[Client]:
    """For what has to be there before a command is tried: it is a hundred times as fast as a command."""
    with connect(engine) as connected:
        yield connected


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{request.node.name}")[:200]
    client.create_queue(name, partitions=3)
    return name
