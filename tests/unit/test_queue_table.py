"""A host's view of the queues follows ZooKeeper by hints, and a hint too many or too few costs nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from delivery.cluster.queues import QueueTable
from delivery.errors import CorruptRecord, HootError, MetadataUnavailable, UnknownQueue
from delivery.metastore import records
from delivery.metastore.records import QueueRecord
from tests.hosting import eventually, queue_record


class ScriptedZooKeeper:
    """Queue records and watches on them."""

    def __init__(self, *queues: QueueRecord) -> None:
        self.records = {record.name: record for record in queues}
        self.hints: dict[str, Callable[[], None]] = {}
        self.reads = 0
        self.fail: HootError | None = None
        self.laid_out = True

    def watch_children(self, path: str, hint: Callable[[], None]) -> None:
        self.hints[path] = hint

    def watch_value(self, path: str, hint: Callable[[], None]) -> None:
        self.hints[path] = hint

    def unwatch(self, path: str) -> None:
        self.hints.pop(path, None)

    def exists(self, path: str) -> bool:
        return self.laid_out

    def queue(self, name: str) -> QueueRecord:
        self.reads += 1
        if self.fail is not None:
            raise self.fail
        if name not in self.records:
            raise UnknownQueue(name)
        return self.records[name]

    def queues(self) -> list[str]:
        return sorted(self.records)

    def put(self, record: QueueRecord | None, name: str = "orders") -> None:
        """Change a queue and give the hints that ZooKeeper gives."""
        paths = [records.queue_path(name)]
        if (record is None) == (name in self.records):
            paths.append(records.QUEUES)
        if record is None:
            del self.records[name]
        else:
            self.records[name] = record
        for path in paths:
            if path in self.hints:
                self.hints[path]()


Changes = list[tuple[QueueRecord, QueueRecord | None]]


def follow(zookeeper: ScriptedZooKeeper, story: Callable[[QueueTable, Changes], Awaitable[None]]) -> None:
    async def run() -> None:
        table = QueueTable(zookeeper, zookeeper)
        changes: Changes = []
        table.on_change(lambda before, after: changes.append((before, after)))
        async with trio.open_nursery() as nursery:
            await nursery.start(table.run)
            await story(table, changes)
            nursery.cancel_scope.cancel()

    trio.run(run)


def test_a_known_queue_costs_no_read() -> None:
    zookeeper = ScriptedZooKeeper(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        reads = zookeeper.reads
        for _ in range(5):
            assert await table.get("orders") == queue_record()
        assert zookeeper.reads == reads

    follow(zookeeper, story)


def test_a_queue_that_was_created_a_moment_ago_is_found_without_a_hint() -> None:
    zookeeper = ScriptedZooKeeper()

    async def story(table: QueueTable, changes: Changes) -> None:
        with pytest.raises(UnknownQueue):
            await table.get("orders")
        zookeeper.records["orders"] = queue_record()
        assert await table.get("orders") == queue_record()
        assert changes == []

    follow(zookeeper, story)


def test_changed_settings_a_deletion_and_a_queue_made_anew_are_reported() -> None:
    old, changed, anew = queue_record(), queue_record(durability="os"), queue_record(generation="g2")
    zookeeper = ScriptedZooKeeper(old)

    async def story(table: QueueTable, changes: Changes) -> None:
        zookeeper.put(changed)
        await eventually(lambda: changes == [(old, changed)])
        zookeeper.put(anew)
        await eventually(lambda: changes[1:] == [(changed, None)])
        assert await table.get("orders") == anew
        zookeeper.put(None)
        await eventually(lambda: changes[2:] == [(anew, None)])
        assert table.names() == []
        assert list(zookeeper.hints) == [records.QUEUES]

    follow(zookeeper, story)


def test_what_could_not_be_read_is_read_when_zookeeper_is_back() -> None:
    old, changed = queue_record(), queue_record(durability="os")
    zookeeper = ScriptedZooKeeper(old)

    async def story(table: QueueTable, changes: Changes) -> None:
        zookeeper.fail = MetadataUnavailable("away")
        zookeeper.put(changed)
        await trio.sleep(0.05)
        assert await table.get("orders") == old
        zookeeper.fail = None
        await eventually(lambda: changes == [(old, changed)])

    follow(zookeeper, story)


def test_a_damaged_record_leaves_the_queue_as_it_was_known() -> None:
    zookeeper = ScriptedZooKeeper(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        zookeeper.fail = CorruptRecord("foreign")
        zookeeper.put(queue_record(durability="os"))
        await trio.sleep(0.05)
        assert await table.get("orders") == queue_record()
        assert changes == []

    follow(zookeeper, story)


def test_a_zookeeper_that_lost_everything_is_no_reason_to_delete_what_is_stored() -> None:
    zookeeper = ScriptedZooKeeper(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        zookeeper.laid_out = False
        zookeeper.put(None)
        await trio.sleep(0.05)
        assert await table.get("orders") == queue_record()
        assert changes == []

    follow(zookeeper, story)
