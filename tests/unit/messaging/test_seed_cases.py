"""Cases of CDAP's own tests of its messaging service (Apache-2.0), written anew: inputs and outcomes are theirs."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from delivery.api.rest.administration import Topic
from delivery.api.rest.exchange import Exchange
from delivery.api.rest.requests import ConsumeRequest, PublishRequest
from delivery.errors import QueueExists, UnknownQueue
from delivery.messaging.names import queue_settings
from delivery.messaging.transactions import Snapshot, write_snapshot
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import QueueRecord, TopicRecord
from delivery.metastore.tables.memory import MemoryMetaStore
from tests.histories import record_of
from tests.hosting import Scene, ScriptedCluster, eventually, play
from tests.writers import writers
from tests.znodes import FakeZNodes

TOPIC, OTHER = Topic("ns", "t"), Topic("ns", "other")


def scene(*others: QueueRecord) -> Scene:
    return Scene(ScriptedCluster(record_of(1), *others))


def exchange(stage: Scene) -> Exchange:
    return Exchange(stage.publisher, stage.ownership, stage.cluster, writers(), lambda: stage.now_ms)  # type: ignore[arg-type]


async def poll(on: Exchange, topic: Topic = TOPIC, limit: int | None = None, tx: Snapshot | None = None) -> list[bytes]:
    reading = await on.poll(topic, ConsumeRequest(None, True, limit, None if tx is None else write_snapshot(tx)))
    return [payload async for stretch in reading.stretches() for payload in stretch.payloads]


async def ids(on: Exchange) -> list[bytes]:
    reading = await on.poll(TOPIC, ConsumeRequest(None, True, None, None))
    return [one async for stretch in reading.stretches() for one in stretch.ids]


def test_what_a_transaction_consumes() -> None:
    """MessageTableTest.testNonTxAndTxConsumption."""
    other = QueueRecord("ns.other", "g", 0, record_of(1).settings, TopicRecord(1, 1000, {}))

    async def story(stage: Scene) -> None:
        on = exchange(stage)
        first, second, third = (stage.now_ms * 1_000_000 + number for number in range(3))
        records = {}
        for pointer in (first, second, third):
            bodies = [b"%d/%d" % (pointer, number) for number in range(50)]
            records[pointer] = await on.publish(TOPIC, PublishRequest(pointer, bodies))
        await on.publish(OTHER, PublishRequest(first, [b"other"] * 50))
        invalid = Snapshot(transaction=third + 1, write_pointer=third + 1, read_pointer=third, invalid=(second,))
        in_progress = Snapshot(
            transaction=third + 1, write_pointer=third + 1, read_pointer=third, in_progress=(second,)
        )
        assert len(await poll(on)) == 150
        assert (len(await poll(on, limit=85)), len(await poll(on, limit=10))) == (85, 10)
        assert len(await poll(on, tx=invalid)) == 100
        assert len(await poll(on, tx=in_progress)) == 50
        record = records[first]
        assert record is not None
        await on.rollback(TOPIC, record)
        assert await poll(on, tx=invalid) == [b"%d/%d" % (third, number) for number in range(50)]
        assert await poll(on, tx=in_progress) == []
        assert len(await poll(on)) == 150
        assert len(await poll(on, OTHER, tx=in_progress)) == 50

    play(story, scene(other))


@pytest.mark.parametrize("requests", [[65_537], [43_690] * 3])
def test_more_messages_in_a_millisecond_than_it_has_sequences(requests: list[int]) -> None:
    """ConcurrentMessageWriterTest.testMaxSequence, testMultiMaxSequence: the clock stands still."""

    async def story(stage: Scene) -> None:
        on = exchange(stage)
        for count in requests:
            await on.publish(TOPIC, PublishRequest(None, [b""] * count))
        found = await ids(on)
        assert len(found) == sum(requests)
        assert all(one < following for one, following in pairwise(found))
        assert int.from_bytes(found[0][:8]) == stage.now_ms < int.from_bytes(found[-1][:8])

    play(story, scene(), seconds=60)


def test_many_writers_share_appends_and_ids_rise_strictly() -> None:
    """ConcurrentMessageWriterTest.testConcurrentWrites: 20 writers, 20 requests each, of 200 messages."""

    async def story(stage: Scene) -> None:
        on = exchange(stage)

        async def write(writer: int) -> None:
            for number in range(20):
                await on.publish(TOPIC, PublishRequest(None, [b"%d/%d" % (writer, number)] * 200))

        async with trio.open_nursery() as writing:
            for writer in range(20):
                writing.start_soon(write, writer)
        found = await ids(on)
        assert len(found) == 80_000
        assert all(one < following for one, following in pairwise(found))
        assert len(stage.store.groups) <= 200, "what waits goes together"
        bodies = await poll(on)
        for writer in range(20):
            mine = [body for body in bodies if body.startswith(b"%d/" % writer)]
            assert mine == [b"%d/%d" % (writer, number) for number in range(20) for _ in range(200)]

    play(story, scene(), seconds=60)


def test_generations_rise_whatever_other_topics_do() -> None:
    """MetadataTableTest.testGenerations: 50 times made and deleted."""
    catalog = Catalog(FakeZNodes(), MemoryMetaStore())
    catalog.ensure_layout()
    for cycle in range(1, 51):
        for name, generation in ((TOPIC.queue, cycle), (OTHER.queue, 2 * cycle - 1), (OTHER.queue, 2 * cycle)):
            made = catalog.create_topic(name, queue_settings(1000), 1000, {})
            assert catalog.queue(name) == made
            assert made.topic is not None
            assert made.topic.generation == generation
            with pytest.raises(QueueExists):
                catalog.create_topic(name, queue_settings(1000), 1000, {})
            catalog.delete_queue(name)
            with pytest.raises(UnknownQueue):
                catalog.queue(name)


def test_nothing_of_an_old_generation_is_left() -> None:
    """DataCleanupTest.testOldGenCleanup, with what was stored for later, too."""

    async def story(stage: Scene) -> None:
        on = exchange(stage)
        for generation in range(1, 4):
            pointer = stage.now_ms * 1_000_000
            await on.store(TOPIC, PublishRequest(pointer, [b"stored"]))
            await on.publish(TOPIC, PublishRequest(None, [b"%d" % generation]))
            assert await poll(on) == [b"%d" % generation]
            before = stage.cluster.records.pop(TOPIC.queue)
            stage.ownership.queue_changed(before, None)
            stage.cluster.owners.clear()
            stage.cluster.records[TOPIC.queue] = record_of(generation + 1)
            await on.publish(TOPIC, PublishRequest(pointer, []))
            assert await poll(on) == []
            await eventually(lambda gone=(before.name, before.generation): gone not in stage.store.queues())  # type: ignore[misc]

    play(story, scene())
