"""What many tests of a whole engine share: one that runs as a process for all of a module, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delivery import Client, connect
from delivery.embedded import EmbeddedZooKeeper
from tests.integration.engine import Engine, hosted


@pytest.fixture(scope="module")
def running(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine of one host."""
    with hosted(zookeeper, tmp_path_factory.mktemp("engine")) as started:
        yield started


@pytest.fixture
def client(running: Engine) -> Iterator[Client]:
    """A client of that engine."""
    with connect(running.address) as connected:
        yield connected
