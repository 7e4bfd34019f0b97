"""What many tests of a whole engine share: one that runs as a process for all of a module, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delivery import Client, connect
from delivery.local import LocalEngine
from tests.integration.engine import engine


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    """An engine of one host, with its own ZooKeeper."""
    with engine(tmp_path_factory.mktemp("engine")) as started:
        yield started


@pytest.fixture
def client(running: LocalEngine) -> Iterator[Client]:
    """A client of that engine."""
    with connect(running.address) as connected:
        yield connected
