"""The stores that the contract suites run over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delivery.model import QueueSettings
from delivery.storage.base import MessageStore
from delivery.storage.log import SegmentedLog
from delivery.storage.memory import MemoryDisk, MemoryStore
from tests.stores import KEY, OTHER

Host = Callable[[], MessageStore]
KEEP = QueueSettings()


@pytest.fixture(params=["memory", "log"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    disk = MemoryDisk()
    stores: list[MessageStore] = []

    def start() -> MessageStore:
        store: MessageStore
        store = MemoryStore(disk) if request.param == "memory" else SegmentedLog(tmp_path, segment_bytes=100_000)
        stores.append(store)
        return store

    yield start
    for store in stores:
        store.close()


@pytest.fixture
def store(host: Host) -> MessageStore:
    """A store with two partitions open under epoch 1."""
    store = host()
    store.open(KEY, 1, KEEP)
    store.open(OTHER, 1, KEEP)
    return store
