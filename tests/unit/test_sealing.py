"""What older epochs left is told to the MetaStore: together, off everybody's way, and again when that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
from trio.testing import MockClock

from delivery import hop
from delivery.cluster.sealing import PAUSE_SECONDS, Sealed, Sealing
from delivery.errors import HootError, MetadataUnavailable
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.records import PersistenceInfo, SealedRange
from delivery.metastore.tables.memory import MemoryMetaStore
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version
from delivery.publish.pending import Stored
from delivery.storage.memory import MemoryDisk
from tests.hosting import FaultyStore, Scene, ScriptedCluster, pass_by, queue_record
from tests.znodes import FakeZNodes

PARTITIONS = 5
GATHERS = 5.0
"""How long takeovers are gathered: no publishing takes as long."""


@pytest.fixture
def catalog() -> Catalog:
    found = Catalog(FakeZNodes(), MemoryMetaStore())
    found.ensure_layout()
    return found


class Slow:
    """The catalog's writing, which can be made to fail."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.calls: list[int] = []
        self.away = 0

    def record_sealed(self, found: Sequence[Sealed]) -> list[HootError | None]:
        self.calls.append(len(found))
        if self.away:
            self.away -= 1
            raise MetadataUnavailable("away")
        return self.catalog.record_sealed(found)


class Hosts:
    """One host after another on the same disk, each under a new session and so under the next epoch."""

    def __init__(self, ttl_seconds: float | None = None) -> None:
        self.cluster = ScriptedCluster(queue_record(partitions=PARTITIONS, ttl_seconds=ttl_seconds))
        self.disk = MemoryDisk()

    async def serve(self, records: Slow, story: Callable[[Scene, Sealing], Awaitable[None]]) -> None:
        self.cluster.current_session += 1
        scene = Scene(self.cluster, FaultyStore(self.disk))
        sealing = Sealing(records, gather_seconds=GATHERS)
        scene.ownership.on_taken(sealing.taken)
        async with trio.open_nursery() as nursery:
            for part in (scene.ownership, scene.publisher, sealing):
                await nursery.start(part.run)
            await story(scene, sealing)
            nursery.cancel_scope.cancel()


async def publish(scene: Scene, partition: int) -> SealedRange:
    """What one batch makes of a range, under the epoch that it was published in."""
    stored = await scene.publish(b"a", b"b", partition=partition)
    assert isinstance(stored, Stored)
    epoch = (await scene.ownership.acquire("orders", partition)).epoch
    return SealedRange(epoch, stored.base_id, stored.base_id + 1)


def told(catalog: Catalog, partition: int) -> tuple[SealedRange, ...] | None:
    found = catalog.managers.persistence.read_topic_persistence_info("orders", partition)
    return None if found is None else found.value.ranges


def run(story: Callable[[], Awaitable[None]]) -> None:
    """With a clock that the story moves; what partitions hold is told without a thread, so that `pass_by` is exact."""

    async def begin() -> None:
        hop.AT_ONCE.set(True)
        await story()

    trio.run(begin, clock=MockClock(rate=1.0))


def test_the_ranges_of_older_epochs_are_told_together_and_a_first_owner_asks_nothing(catalog: Catalog) -> None:
    hosts, records = Hosts(), Slow(catalog)
    ranges: dict[int, list[SealedRange]] = {partition: [] for partition in range(PARTITIONS)}

    async def fill(scene: Scene, sealing: Sealing) -> None:
        for partition in range(PARTITIONS):
            ranges[partition].append(await publish(scene, partition))
        await pass_by(GATHERS)
        assert sealing.due == 0

    async def story() -> None:
        await hosts.serve(records, fill)
        assert records.calls == []
        assert told(catalog, 0) is None
        await hosts.serve(records, fill)
        assert records.calls == [PARTITIONS]
        await hosts.serve(records, fill)
        assert records.calls == [PARTITIONS] * 2
        for partition in range(PARTITIONS):
            assert told(catalog, partition) == tuple(ranges[partition][:2])

    run(story)


def test_a_metastore_that_is_away_delays_nothing_and_is_told_later(catalog: Catalog) -> None:
    hosts, records = Hosts(), Slow(catalog)
    first: list[SealedRange] = []

    async def fill(scene: Scene, _: Sealing) -> None:
        first.append(await publish(scene, 0))

    async def later(scene: Scene, sealing: Sealing) -> None:
        begun = trio.current_time()
        await publish(scene, 0)
        assert trio.current_time() - begun < GATHERS
        await pass_by(GATHERS)
        assert (sealing.due, told(catalog, 0)) == (1, None)
        await pass_by(PAUSE_SECONDS)
        assert told(catalog, 0) is None, "not again at once"
        await pass_by(GATHERS)
        assert told(catalog, 0) == tuple(first)

    async def story() -> None:
        await hosts.serve(records, fill)
        records.away = 1
        await hosts.serve(records, later)

    run(story)


def test_what_retention_has_dropped_is_told_no_longer(catalog: Catalog) -> None:
    hosts, records = Hosts(ttl_seconds=60.0), Slow(catalog)

    async def fill(scene: Scene, _: Sealing) -> None:
        await publish(scene, 0)
        await pass_by(GATHERS)

    async def trim(scene: Scene, sealing: Sealing) -> None:
        await fill(scene, sealing)
        owned = await scene.ownership.acquire("orders", 0)
        assert [one.epoch for one in told(catalog, 0) or ()] == [1]
        scene.store.trim(owned.key, owned.settings, scene.now_ms + 120_000)
        sealing.trimmed(owned)
        await pass_by(GATHERS)
        assert told(catalog, 0) == ()

    async def story() -> None:
        await hosts.serve(records, fill)
        await hosts.serve(records, trim)

    run(story)


def test_a_newer_owner_is_not_written_over_and_a_damaged_record_is(catalog: Catalog) -> None:
    ranges = (SealedRange(1, 1, 5), SealedRange(2, 6, 9))
    assert catalog.record_sealed([Sealed("q", 0, 3, ranges), Sealed("q", 1, 3, ())]) == [None, None]
    assert catalog.managers.persistence.read_topic_persistence_info("q", 1) is None, "nothing is no news"
    assert catalog.record_sealed([Sealed("q", 0, 2, ranges[:1])]) == [None]
    table = catalog.managers.persistence._infos._table
    table.put("q\x0100002", Value({"ranges": b"??"}), Version.NEW)
    assert catalog.record_sealed([Sealed("q", 2, 3, ranges)]) == [None]
    for partition in (0, 2):
        found = catalog.managers.persistence.read_topic_persistence_info("q", partition)
        assert found is not None
        assert found.value == PersistenceInfo(ranges)
    assert catalog.record_sealed([Sealed("q", 2, 3, ranges)]) == [None]
    assert table.get("q\x0100002").version == Version(1), "nothing changes"
