"""Owned partitions are trimmed to what their queue keeps; others are left alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio
from trio.testing import MockClock

from delivery.cluster.retention import UNLIMITED_SECONDS, Refresh, Retention
from delivery.errors import Fenced, MetadataUnavailable, NotOwner, StorageUnavailable
from delivery.ids import ID_MAX
from delivery.model import QueueSettings
from delivery.publish.pending import Stored
from delivery.storage.base import PartitionKey
from delivery.storage.memory import MemoryDisk
from tests.hosting import FaultyStore, Scene, ScriptedCluster, batch, pass_by, queue_record


class TrimmingStore(FaultyStore):
    """Counts trims, and fails them when told to."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk)
        self.trims = 0
        self.fail_trim: Fenced | StorageUnavailable | None = None

    def trim(self, key: PartitionKey, settings: QueueSettings, now_ms: int, until: int = ID_MAX) -> int:
        self.trims += 1
        if self.fail_trim is not None:
            raise self.fail_trim
        return super().trim(key, settings, now_ms, until)


INTERVAL = 10.0
KEY = PartitionKey("orders", "g1", 0)


def follow(
    scene: Scene, story: Callable[[list[tuple[str, int]]], Awaitable[None]], refresh: Refresh | None = None
) -> None:
    """Run a story beside a Retention that looks every ten seconds of a clock that the story moves."""

    async def run() -> None:
        freed: list[tuple[str, int]] = []
        retention = Retention(
            scene.ownership, scene.store, INTERVAL, lambda queue, size: freed.append((queue, size)), refresh
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(scene.ownership.run)
            await nursery.start(scene.publisher.run)
            await nursery.start(retention.run)
            await story(freed)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=MockClock(rate=1.0))


def trimming(ttl_seconds: float | None = None) -> tuple[Scene, TrimmingStore]:
    store = TrimmingStore()
    return Scene(ScriptedCluster(queue_record(ttl_seconds=ttl_seconds)), store), store


def test_what_is_too_old_is_dropped_and_counted() -> None:
    scene, _ = trimming(ttl_seconds=60.0)

    async def story(freed: list[tuple[str, int]]) -> None:
        assert isinstance(await scene.publish(b"long ago"), Stored)
        await pass_by(INTERVAL)
        assert freed == [("orders", len(batch(b"long ago")))]
        assert (await scene.ownership.acquire("orders", 0)).watermark > 0

    follow(scene, story)


def test_a_queue_that_keeps_everything_is_looked_at_now_and_then() -> None:
    """A store that was given an earlier limit may lose by itself what it got then."""
    scene, store = trimming()

    async def story(freed: list[tuple[str, int]]) -> None:
        await scene.publish(b"a")
        for _ in range(3):
            await pass_by(INTERVAL)
        assert (freed, store.trims) == ([], 0)
        for count in (1, 2):
            for _ in range(round(UNLIMITED_SECONDS / INTERVAL)):
                await pass_by(INTERVAL)
            assert (freed, store.trims) == ([], count)

    follow(scene, story)


def test_a_partition_that_another_host_took_over_is_dropped() -> None:
    scene, store = trimming(ttl_seconds=60.0)
    store.fail_trim = Fenced("epoch 2 is there")

    async def story(freed: list[tuple[str, int]]) -> None:
        owned = await scene.ownership.acquire("orders", 0)
        await pass_by(INTERVAL)
        assert isinstance(owned.feed.error, NotOwner)

    follow(scene, story)


def test_a_trim_that_fails_is_tried_again() -> None:
    scene, store = trimming(ttl_seconds=60.0)
    store.fail_trim = StorageUnavailable("busy")

    async def story(freed: list[tuple[str, int]]) -> None:
        await scene.publish(b"long ago")
        await pass_by(INTERVAL)
        assert not freed
        store.fail_trim = None
        await pass_by(INTERVAL)
        assert len(freed) == 1

    follow(scene, story)


def test_the_store_hears_once_that_a_queue_has_no_limit_any_more() -> None:
    """A store that gives what it writes an age would go on doing so."""
    scene, store = trimming(ttl_seconds=3600.0)

    async def story(freed: list[tuple[str, int]]) -> None:
        owned = await scene.ownership.acquire("orders", 0)
        await pass_by(INTERVAL)
        assert store.trims == 1
        owned.settings = QueueSettings()
        store.fail_trim = StorageUnavailable("busy")
        await pass_by(INTERVAL)
        store.fail_trim = None
        for _ in range(3):
            await pass_by(INTERVAL)
        assert store.trims == 3

    follow(scene, story)


def test_the_store_learns_what_is_archived_before_anything_is_dropped() -> None:
    """A partition of which that cannot be told now keeps what it has."""
    store = TrimmingStore()
    scene = Scene(ScriptedCluster(queue_record(ttl_seconds=60.0, archive="/archive")), store)
    learnt: list[tuple[PartitionKey, str]] = []
    away = True

    def learn(wanted: Sequence[tuple[PartitionKey, str]]) -> None:
        if away:
            raise MetadataUnavailable("away")
        assert store.bounds(KEY).messages == 1, "not yet"
        learnt.extend(wanted)

    async def story(freed: list[tuple[str, int]]) -> None:
        nonlocal away
        assert isinstance(await scene.publish(b"long ago"), Stored)
        await pass_by(INTERVAL)
        assert (freed, store.trims) == ([], 0)
        away = False
        await pass_by(INTERVAL)
        assert learnt == [(KEY, "/archive")]
        assert [queue for queue, _ in freed] == ["orders"]

    follow(scene, story, learn)
