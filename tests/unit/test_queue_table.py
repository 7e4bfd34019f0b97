"""A host's view of the queues follows ZooKeeper by hints, and a hint too many or too few costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest
import trio

from delivery.cluster import queues as queues_module
from delivery.cluster.queues import QueueTable
from delivery.errors import CorruptRecord, HootError, MetadataUnavailable, Throttled, UnknownQueue
from delivery.metastore.records import QueueRecord
from delivery.metastore.tables.base import Watcher, WatchEvent
from tests.hosting import eventually, queue_record


class ScriptedQueues:
    """Queue records and one-shot watches on them."""

    def __init__(self, *queues: QueueRecord) -> None:
        self.records = {record.name: record for record in queues}
        self.held = [(record.name, record.generation) for record in queues]
        """What the store has data of."""
        self.watchers: dict[str, Watcher] = {}
        self.reads = 0
        self.read_together: list[str] = []
        self.fail: HootError | None = None
        self.throttled = False
        self.is_laid_out = True
        self.gate = threading.Event()
        """Queues that are not there are reported when it is set."""
        self.gate.set()

    def queue(self, name: str, watch: Watcher | None = None) -> QueueRecord:
        self.reads += 1
        if self.fail is not None:
            raise self.fail
        if watch is not None and self.throttled:
            raise Throttled("too many are watched")
        if watch is not None:
            self.watchers[name] = watch
        if name not in self.records:
            assert self.gate.wait(10)
            raise UnknownQueue(name)
        return self.records[name]

    def read_queues(self, names: Sequence[str]) -> list[QueueRecord | CorruptRecord | None]:
        self.read_together += names
        return [self.records.get(name) for name in names]

    def put(self, record: QueueRecord | None, name: str = "orders") -> None:
        """Change a queue, and call who watches it."""
        if record is None:
            del self.records[name]
        else:
            self.records[name] = record
        watcher = self.watchers.pop(name, None)
        if watcher is not None:
            watcher(WatchEvent.DELETED if record is None else WatchEvent.CHANGED)


Changes = list[tuple[QueueRecord, QueueRecord | None]]


def follow(queues: ScriptedQueues, story: Callable[[QueueTable, Changes], Awaitable[None]]) -> None:
    async def run() -> None:
        table = QueueTable(queues, lambda: queues.held)
        changes: Changes = []
        table.on_change(lambda before, after: changes.append((before, after)))
        async with trio.open_nursery() as nursery:
            await nursery.start(table.run)
            await eventually(lambda: queues.throttled or set(queues.watchers) == set(queues.records))
            await story(table, changes)
            nursery.cancel_scope.cancel()

    trio.run(run)


def test_a_known_queue_costs_no_read() -> None:
    queues = ScriptedQueues(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        reads = queues.reads
        for _ in range(5):
            assert await table.get("orders") == queue_record()
        assert queues.reads == reads

    follow(queues, story)


def test_that_a_queue_has_found_its_store_is_known_and_told_nobody() -> None:
    queues = ScriptedQueues(queue_record())
    settled = msgspec.structs.replace(queue_record(), home="log")

    async def story(table: QueueTable, changes: Changes) -> None:
        await eventually(lambda: "orders" in queues.watchers)
        queues.put(settled, "orders")
        await table.look("orders")
        assert await table.get("orders") == settled
        assert changes == []
        other = msgspec.structs.replace(queue_record(ttl_seconds=60), home="log")
        queues.put(other, "orders")
        await eventually(lambda: changes == [(settled, other)])

    follow(queues, story)


def test_a_queue_that_many_ask_for_at_once_is_read_once() -> None:
    queues = ScriptedQueues()

    async def story(table: QueueTable, changes: Changes) -> None:
        queues.records["wide"] = queue_record("wide")
        found = []

        async def ask(name: str) -> None:
            try:
                found.append((await table.get(name)).name)
            except HootError as error:
                found.append(error.code)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(ask, "wide")
            nursery.start_soon(ask, "none")
            nursery.start_soon(ask, "no name")
        assert sorted(found) == ["invalid_request", "unknown_queue", *["wide"] * 50]
        assert sorted(queues.read_together) == ["none", "wide"]

    follow(queues, story)


def test_only_the_queues_that_the_store_holds_are_known_at_first_the_others_when_they_are_asked_for() -> None:
    queues = ScriptedQueues(queue_record())
    queues.held.append(("orders", "earlier"))
    queues.held.append(("gone", "g1"))

    async def story(table: QueueTable, changes: Changes) -> None:
        queues.records["other"] = queue_record("other")
        assert table.names() == ["orders"]
        assert await table.get("other") == queue_record("other")
        assert table.names() == ["orders", "other"]
        await eventually(lambda: "other" in queues.watchers)
        queues.put(None, "other")
        await eventually(lambda: changes == [(queue_record("other"), None)])

    follow(queues, story)


@pytest.mark.parametrize("why", ["damaged", "throttled"])
def test_what_cannot_be_watched_is_looked_at_again_and_again(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues_module, "_UNWATCHED_SECONDS", 0.02)
    queues = ScriptedQueues(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        if why == "damaged":
            queues.fail = CorruptRecord("foreign")
        else:
            queues.throttled = True
        queues.put(queue_record(durability="os"))
        reads = queues.reads
        await eventually(lambda: queues.reads > reads + 2)
        queues.fail = None
        del queues.records["orders"]
        await eventually(lambda: changes[-1:] != [] and changes[-1][1] is None)
        assert table.names() == []

    follow(queues, story)


def test_a_queue_that_was_created_a_moment_ago_is_found_without_a_hint() -> None:
    queues = ScriptedQueues()

    async def story(table: QueueTable, changes: Changes) -> None:
        with pytest.raises(UnknownQueue):
            await table.get("orders")
        queues.records["orders"] = queue_record()
        assert await table.get("orders") == queue_record()
        assert changes == []

    follow(queues, story)


def test_changed_settings_a_deletion_and_a_queue_made_anew_are_reported() -> None:
    old, changed, anew = queue_record(), queue_record(durability="os"), queue_record(generation="g2")
    queues = ScriptedQueues(old)

    async def story(table: QueueTable, changes: Changes) -> None:
        queues.put(changed)
        await eventually(lambda: changes == [(old, changed)] and "orders" in queues.watchers)
        queues.put(anew)
        await eventually(lambda: changes[1:] == [(changed, None)])
        assert await table.get("orders") == anew
        await eventually(lambda: "orders" in queues.watchers)
        queues.put(None)
        await eventually(lambda: changes[2:] == [(anew, None)])
        assert table.names() == []
        assert queues.watchers == {}

    follow(queues, story)


def test_what_could_not_be_read_is_read_when_queues_is_back() -> None:
    old, changed = queue_record(), queue_record(durability="os")
    queues = ScriptedQueues(old)

    async def story(table: QueueTable, changes: Changes) -> None:
        queues.fail = MetadataUnavailable("away")
        queues.put(changed)
        await trio.sleep(0.05)
        assert await table.get("orders") == old
        queues.fail = None
        await eventually(lambda: changes == [(old, changed)])

    follow(queues, story)


def test_a_damaged_record_leaves_the_queue_as_it_was_known() -> None:
    queues = ScriptedQueues(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        queues.fail = CorruptRecord("foreign")
        queues.put(queue_record(durability="os"))
        await trio.sleep(0.05)
        assert await table.get("orders") == queue_record()
        assert changes == []

    follow(queues, story)


def test_a_queues_that_lost_everything_is_no_reason_to_delete_what_is_stored() -> None:
    queues = ScriptedQueues(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        queues.is_laid_out = False
        queues.put(None)
        await trio.sleep(0.05)
        assert await table.get("orders") == queue_record()
        assert changes == []

    follow(queues, story)


def test_who_changed_a_queue_may_wait_until_the_change_is_known() -> None:
    queues = ScriptedQueues(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        queues.records["orders"] = queue_record(ttl_seconds=5.0)
        await table.look("orders")
        assert (await table.get("orders")).settings.ttl_seconds == 5.0
        del queues.records["orders"]
        await table.look("orders")
        assert table.names() == []
        await table.look("orders")
        assert len(changes) == 2

    follow(queues, story)


def test_a_generation_that_is_asked_for_is_looked_for_before_anybody_tells_of_it() -> None:
    queues = ScriptedQueues(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        assert (await table.get("orders", "g1")).generation == "g1"
        queues.records["orders"] = queue_record(generation="g2")
        assert (await table.get("orders")).generation == "g1"
        assert (await table.get("orders", "g2")).generation == "g2"
        assert [after for _, after in changes] == [None]
        reads = queues.reads
        for _ in range(100):
            with pytest.raises(UnknownQueue, match="another one of this name"):
                await table.get("orders", "g1")
        assert queues.reads < reads + 10, "who goes on asking costs nothing"

    follow(queues, story)


def test_a_generation_that_cannot_be_looked_for_may_be_there_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delivery.cluster.queues._LOOK_SECONDS", 0.1)
    queues = ScriptedQueues(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        await eventually(lambda: "orders" in queues.watchers)
        queues.fail = MetadataUnavailable("no answer")
        with pytest.raises(MetadataUnavailable, match="new one of this name"):
            await table.get("orders", "g2")

    follow(queues, story)


def test_an_old_reading_does_not_end_a_queue_that_was_made_again_and_asked_for_meanwhile() -> None:
    queues = ScriptedQueues(queue_record())

    async def story(table: QueueTable, changes: Changes) -> None:
        watcher = queues.watchers["orders"]
        queues.put(None)
        await eventually(lambda: table.names() == [])
        queues.gate.clear()
        reads = queues.reads
        watcher(WatchEvent.DELETED)  # one hint too many
        await eventually(lambda: queues.reads > reads)
        queues.records["orders"] = queue_record(generation="g2")
        assert (await table.get("orders")).generation == "g2"
        queues.gate.set()
        await eventually(lambda: "orders" in queues.watchers)
        assert [after for _, after in changes] == [None]
        assert (await table.get("orders")).generation == "g2"

    follow(queues, story)
