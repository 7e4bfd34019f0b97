"""The queues' records over any MetaStore: by version, by page, and the names that come near."""

from __future__ import annotations

import pytest

from delivery.errors import BadVersion, CorruptRecord, InvalidRequest, QueueExists, UnknownQueue
from delivery.metastore.managers import queues as managers_queues
from delivery.metastore.managers.queues import QueueManager
from delivery.metastore.records import QueueRecord
from delivery.metastore.tables.base import MetaStore, WatchEvent
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.model import QueueSettings
from tests.integration.embedded import eventually
from tests.metastore_tables import ANY, NEW, refused


def queue(name: str = "q", generation: str = "g", partitions: int = 1) -> QueueRecord:
    return QueueRecord(name, generation, 1, QueueSettings(partitions=partitions))


@pytest.fixture
def queues(metastore: MetaStore) -> QueueManager:
    return QueueManager(metastore)


def test_a_queue_is_created_updated_and_deleted_by_version(queues: QueueManager) -> None:
    assert queues.read_queue("q") is None
    assert queues.read_version("q") is None
    for version in (ANY, Version(0)):
        assert refused(queues.update_queue, queue(), version) is UnknownQueue
        assert refused(queues.delete_queue, "q", version) is UnknownQueue
    first = queues.create_queue(queue())
    assert refused(queues.create_queue, queue(generation="g2")) is QueueExists
    assert queues.read_queue("q") == Versioned(queue(), first)
    second = queues.update_queue(queue(partitions=3), first)
    assert queues.read_version("q") == second
    assert refused(queues.update_queue, queue(), first) is BadVersion
    assert refused(queues.delete_queue, "q", first) is BadVersion
    assert queues.read_queue("q") == Versioned(queue(partitions=3), second)
    queues.delete_queue("q", second)
    assert queues.read_queue("q") is None


def test_queues_are_listed_by_page_in_the_order_of_their_names(queues: QueueManager) -> None:
    names = [f"q{number:03}" for number in range(25)]
    for name in reversed(names):
        queues.create_queue(queue(name))
    pages: list[list[str]] = []
    while page := queues.list_queue_names(pages[-1][-1] if pages else None, 10):
        pages.append(page)
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [name for page in pages for name in page] == names
    assert queues.read_queues(["q001", "none", "q002"]) == [queue("q001"), None, queue("q002")]
    for limit in (0, 1001):
        assert refused(queues.list_queue_names, None, limit) is InvalidRequest


def test_only_a_part_of_all_names_is_looked_at_for_those_that_come_near(
    queues: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managers_queues, "NEAR_MAX", 3)
    for number in range(20):
        queues.create_queue(queue(f"q{number:02}"))
    assert queues.names_around("q10") == ["q08", "q09", "q10", "q11", "q12", "q13"]
    assert queues.names_around("a") == ["q00", "q01", "q02"]
    assert queues.names_around("z") == ["q17", "q18", "q19"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"name":"r","generation":"g","created_ms":1,"settings":{}}', None])
def test_a_damaged_queue_is_named_listed_and_can_be_deleted(metastore: MetaStore, content: bytes | None) -> None:
    metastore.create_scannable_table("queues").put("q", Value({"queue": content}), NEW)
    queues = QueueManager(metastore)
    with pytest.raises(CorruptRecord, match="'q' of table queues"):
        queues.read_queue("q")
    assert [type(one) for one in queues.read_queues(["q"])] == [CorruptRecord]
    assert queues.list_queue_names() == ["q"]
    version = queues.read_version("q")
    assert version is not None
    queues.delete_queue("q", version)
    assert queues.list_queue_names() == []


def test_a_watch_tells_once_of_the_next_change(queues: QueueManager) -> None:
    told: list[WatchEvent] = []
    version = queues.create_queue(queue())
    queues.read_queue("q", told.append)
    version = queues.update_queue(queue(partitions=2), version)
    eventually(lambda: told == [WatchEvent.CHANGED], "the watch")
    queues.read_queue("q", told.append)
    queues.delete_queue("q", version)
    eventually(lambda: told == [WatchEvent.CHANGED, WatchEvent.DELETED], "the second watch")
