"""The calls of a topic's owner on a store in memory: what a fault leaves, and what the next owner knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import pytest

from delivery.api.rest.administration import Topic
from delivery.api.rest.exchange import Exchange
from delivery.api.rest.reading import Reading
from delivery.api.rest.requests import ConsumeRequest, Published, PublishRequest
from delivery.api.writers import Writers
from delivery.cluster.backlog import Floor
from delivery.cluster.queues import QueueTable
from delivery.errors import (
    HootError,
    InvalidRequest,
    NotOwner,
    QueueFull,
    StorageUnavailable,
    UnknownOutcome,
    UnknownPartition,
    UnknownQueue,
)
from delivery.messaging.names import queue_settings
from delivery.metastore.records import QueueRecord, TopicRecord
from delivery.storage.base import Amount, Chunk
from delivery.transactions.errors import NoSuchWriter, TransactionExpired
from delivery.transactions.pointers import first_run
from tests.hosting import Scene, ScriptedCluster, play
from tests.topics import transaction
from tests.writers import STANDINGS, refusal, writers

TOPIC, SEVERAL = Topic("ns", "t"), Topic("ns", "several")
NOW = 1_700_000_000_000
TX = NOW * 1_000_000
"""Of a service that is not Hoot's."""
OWN = first_run(TX, NOW)


def scene() -> Scene:
    record = QueueRecord("ns.t", "g1", 0, queue_settings(1000), TopicRecord(1, 1000, {}))
    several = msgspec.structs.replace(record, name="ns.several", settings=queue_settings(1000, 3))
    return Scene(ScriptedCluster(record, several, msgspec.structs.replace(record, name="ns.queue", topic=None)))


def tell(story: Callable[[Scene, Exchange], Awaitable[None]]) -> None:
    play(lambda stage: story(stage, exchange(stage)), scene())


def exchange(stage: Scene, known: Writers | None = None, messages_max: int = 0) -> Exchange:
    queues: QueueTable = stage.cluster  # type: ignore[assignment]
    return Exchange(stage.publisher, stage.ownership, queues, known or writers(), lambda: stage.now_ms, messages_max)


async def poll(on: Exchange, tx: bytes | None = None, start: bytes | int | None = None) -> list[bytes]:
    return await payloads(await on.poll(TOPIC, ConsumeRequest(start, True, None, tx)))


async def payloads(reading: Reading) -> list[bytes]:
    return [payload async for stretch in reading.stretches() for payload in stretch.payloads]


async def publish(on: Exchange, *bodies: bytes, tx: int | None = None) -> Published | None:
    return await on.publish(TOPIC, PublishRequest(tx, bodies))


def test_whoever_owns_the_topic_next_knows_what_was_stored_and_rolled_back() -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        await on.store(TOPIC, PublishRequest(TX, [b"s1", b"s2"]))
        record = await publish(on, b"gone", tx=TX)
        assert record is not None
        await on.rollback(TOPIC, record)
        assert await poll(on, transaction(TX, TX)) == []
        stage.ownership.lose_all(NotOwner("for a test"))
        assert await poll(on, transaction(TX, TX)) == []
        await publish(on, tx=TX)
        assert await poll(on, transaction(TX, TX)) == [b"s1", b"s2"]
        stage.ownership.lose_all(NotOwner("for a test"))
        assert await poll(exchange(stage)) == [b"gone", b"s1", b"s2"]

    tell(story)


def test_a_full_topic_takes_no_messages_and_no_bodies_and_lets_transactions_end() -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        await on.store(TOPIC, PublishRequest(TX, [b"stored before"]))
        record = await publish(on, b"taken back", tx=TX)
        assert record is not None
        owned = await stage.ownership.acquire("ns.t", 0)
        owned.settings = msgspec.structs.replace(owned.settings, backlog_messages=2)
        owned.backlog.measured(owned.backlog.mark(), Floor(0, "audit"), Amount(2, 200))
        for refused in (
            partial(publish, on, b"x"),
            partial(publish, on, b"x", tx=TX),
            partial(on.store, TOPIC, PublishRequest(TX, [b"x"])),
        ):
            with pytest.raises(QueueFull):
                await refused()
        await on.rollback(TOPIC, record)
        await publish(on, tx=TX)
        assert await poll(on, transaction(TX, TX)) == [b"stored before"]

    tell(story)


def test_a_poll_ends_where_the_partition_ended_when_it_began() -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        await publish(on, b"1")
        await publish(on, b"2")
        polled = await on.poll(TOPIC, ConsumeRequest(None, True, None, None))
        await publish(on, b"3")
        assert await payloads(polled) == [b"1", b"2"]

    tell(story)


def test_polls_of_what_came_of_late_do_not_touch_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        await on.store(TOPIC, PublishRequest(TX, [b"stored"]))
        await publish(on, b"inline")
        await publish(on, tx=TX)
        reads: list[object] = []
        read = stage.store.read

        def noted(*args: Any) -> Chunk | None:
            reads.append(args)
            return read(*args)

        monkeypatch.setattr(stage.store, "read", noted)
        for tx in (None, transaction(TX, TX)):
            assert await poll(on, tx) == [b"inline", b"stored"]
        assert reads == []
        stage.tail.drop((await stage.ownership.acquire(TOPIC.queue, 0)).key)
        assert await poll(on) == [b"inline", b"stored"]
        assert reads != []

    tell(story)


def test_a_poll_gives_no_more_than_the_operator_allows() -> None:
    async def story(stage: Scene) -> None:
        on = exchange(stage, messages_max=2)
        await publish(on, b"1", b"2", b"3")
        for limit, expected in ((None, [b"1", b"2"]), (1, [b"1"]), (2**31 - 1, [b"1", b"2"])):
            polled = await on.poll(TOPIC, ConsumeRequest(None, True, limit, None))
            assert await payloads(polled) == expected

    play(story, scene())


def test_messages_and_their_groups_end_with_the_ttl_judged_by_the_marker() -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        await publish(on, b"old")
        await on.store(TOPIC, PublishRequest(TX, [b"stored"]))
        stage.now_ms += 999_000
        await publish(on, tx=TX)
        assert await poll(on) == [b"old", b"stored"]
        stage.now_ms += 2_000
        assert await poll(on) == [b"stored"]
        stage.now_ms += 999_000
        assert await poll(on, start=0) == []

    tell(story)


def test_bodies_that_are_too_old_to_be_kept_are_missing_from_their_group_and_nothing_else() -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        await on.store(TOPIC, PublishRequest(TX, [b"early"]))
        stage.now_ms += 3_600_000
        await on.store(TOPIC, PublishRequest(TX, [b"late"]))
        await publish(on, tx=TX)
        await publish(on, b"behind")
        owned = await stage.ownership.acquire(TOPIC.queue, 0)
        stage.store.trim(owned.key, queue_settings(1), stage.now_ms + 89_000_000)
        stage.tail.drop(owned.key)
        assert await poll(on) == await poll(on, transaction(TX, TX)) == [b"late", b"behind"]

    tell(story)


@pytest.mark.parametrize("bodies", [(b"a",), ()])
def test_a_transaction_that_is_too_old_publishes_and_stores_nothing(bodies: tuple[bytes, ...]) -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        stage.now_ms += 90_000_000
        await publish(on, *bodies, tx=TX)
        stage.now_ms += 1
        before = len(stage.store.groups)
        with pytest.raises(TransactionExpired):
            await publish(on, *bodies, tx=TX)
        with pytest.raises(TransactionExpired):
            await on.store(TOPIC, PublishRequest(TX, [b"a"]))
        assert len(stage.store.groups) == before

    tell(story)


@pytest.mark.parametrize(("standing", "refused", "undoing"), STANDINGS)
def test_only_a_transaction_in_progress_writes_and_only_what_is_not_committed_is_taken_back(
    standing: str | None, refused: type[HootError] | None, undoing: type[HootError] | None
) -> None:
    async def story(stage: Scene) -> None:
        known: dict[int, str | None] = {OWN: "in_progress"}
        on = exchange(stage, writers(known.get))
        record = await publish(on, b"a", tx=OWN)
        assert record is not None
        known[OWN] = standing
        before = len(stage.store.groups)
        assert await refusal(publish(on, b"b", tx=OWN)) is refused
        assert await refusal(publish(on, tx=OWN)) is refused
        assert await refusal(on.store(TOPIC, PublishRequest(OWN, [b"b"]))) is refused
        assert len(stage.store.groups) == before + (3 if refused is None else 0)
        before = len(stage.store.groups)
        assert await refusal(on.rollback(TOPIC, record)) is undoing
        assert len(stage.store.groups) == before + (undoing is None)

    play(story, scene())


def test_pointers_of_another_service_are_taken_unless_the_operator_has_none() -> None:
    async def story(stage: Scene) -> None:
        record = await publish(exchange(stage), b"1", tx=TX)
        assert record is not None
        strict = exchange(stage, writers(foreign=False))
        assert await refusal(publish(strict, b"2", tx=TX)) is NoSuchWriter
        assert await refusal(strict.store(TOPIC, PublishRequest(TX, [b"2"]))) is NoSuchWriter
        assert await refusal(strict.rollback(TOPIC, record)) is NoSuchWriter
        await publish(strict, b"plain")
        assert await poll(strict) == [b"1", b"plain"]

    play(story, scene())


def test_of_several_partitions_each_transaction_has_one_and_a_rollback_finds_it() -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        plain = [b"%d" % number for number in range(40)]
        for body in plain:
            await on.publish(SEVERAL, PublishRequest(None, [body]))
        pointers = range(TX, TX + 8)
        records: dict[int, Published] = {}
        for tx in pointers:
            await on.store(SEVERAL, PublishRequest(tx, [b"stored %d" % tx]))
            await on.publish(SEVERAL, PublishRequest(tx, [b"inline %d" % tx]))
            record = await on.publish(SEVERAL, PublishRequest(tx, []))
            assert record is not None
            records[tx] = record
        found = [await polled(on, number) for number in range(3)]
        assert all(bodies for bodies in found)
        everything = [*plain, *(b"%s %d" % (kind, tx) for tx in pointers for kind in (b"inline", b"stored"))]
        assert sorted(chain(*found)) == sorted(everything)
        for record in records.values():
            await on.rollback(SEVERAL, record)
        reader = transaction(TX + 99, TX + 98)
        left = [body for number in range(3) for body in await polled(on, number, reader)]
        assert sorted(left) == sorted(body for body in everything if not body.startswith(b"stored"))

    tell(story)


def test_a_partition_that_is_named_is_taken_and_a_poll_of_several_names_one() -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        await on.store(SEVERAL, PublishRequest(TX, [b"s"]), 1)
        records = []
        for number in range(3):
            await on.publish(SEVERAL, PublishRequest(TX, []), number)
            found = await on.publish(SEVERAL, PublishRequest(TX, [b"a%d" % number]), number)
            assert found is not None
            assert found.start_sequence_id >> 16 == number
            records.append(found)
        record = records[-1]
        assert [await polled(on, number) for number in range(3)] == [[b"a0"], [b"s", b"a1"], [b"a2"]]
        await on.rollback(SEVERAL, record)
        reader = transaction(TX, TX)
        assert [await polled(on, number, reader) for number in range(3)] == [[b"a0"], [b"s", b"a1"], []]
        before = len(stage.store.groups)
        wrong = msgspec.structs.replace(record, start_sequence_id=3 << 16, end_timestamp=NOW * 2)
        assert await refusal(polled(on, None)) is InvalidRequest
        for refused in (
            polled(on, 3), polled(on, -1), on.publish(SEVERAL, PublishRequest(None, [b"a"]), 3),
            on.store(SEVERAL, PublishRequest(TX, [b"a"]), 3), on.rollback(SEVERAL, wrong),
            on.publish(TOPIC, PublishRequest(None, [b"a"]), 1),
            on.poll(TOPIC, ConsumeRequest(None, True, None, None), 1),
        ):  # fmt: skip
            assert await refusal(refused) is UnknownPartition
        assert len(stage.store.groups) == before

    tell(story)


async def polled(on: Exchange, partition: int | None, tx: bytes | None = None) -> list[bytes]:
    return await payloads(await on.poll(SEVERAL, ConsumeRequest(None, True, None, tx), partition))


def test_a_store_that_fails_answers_that_nobody_knows() -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        await publish(on, b"1")
        stage.store.fail = StorageUnavailable("no disk")
        with pytest.raises(UnknownOutcome):
            await publish(on, b"2")

    tell(story)


def test_a_queue_that_is_no_topic_is_not_touched() -> None:
    async def story(stage: Scene, on: Exchange) -> None:
        queue = Topic("ns", "queue")
        with pytest.raises(UnknownQueue):
            await on.publish(queue, PublishRequest(None, [b"a"]))
        with pytest.raises(UnknownQueue):
            await on.poll(Topic("ns", "none"), ConsumeRequest(None, True, 0, None))
        with pytest.raises(InvalidRequest):
            await on.publish(TOPIC, PublishRequest(None, [b""] * 1_000_001))
        assert stage.store.groups == []

    tell(story)
