"""What HBase removes by itself, in the life that it was stored with, whatever the queue's ttl has become since."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from delivery import wall
from delivery.errors import CorruptRecord
from delivery.hbase import Row
from delivery.ids import first_id_at
from delivery.model import Layout, QueueSettings
from delivery.storage.base import Bounds
from delivery.storage.hbase import HBaseStore
from delivery.storage.hbase.heads import unpack
from tests.hbase_tables import Data, FakeTables
from tests.stores import KEY, NOW_MS, batch, bodies_of, store_all

TABLE = "hoot.g1.orders"
MINUTE, HOUR = 60_000, 3_600_000
KEEP = QueueSettings()
AN_HOUR, A_DAY, A_WEEK = (QueueSettings(ttl_seconds=hours * 3600) for hours in (1, 24, 7 * 24))
ARCHIVE_FIRST = QueueSettings(ttl_seconds=3600, archive_first=True)
LONGER = {"a longer ttl": A_WEEK, "no ttl": KEEP, "the archive first": ARCHIVE_FIRST}


class Mortal(FakeTables):
    """Tables that remove what is put with a life, at its end and not a moment later."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.data)
        self.scene, self.scans = scene, 0

    def put(self, table: str, rows: Sequence[Row], *, ttl_ms: int | None = None) -> None:
        super().put(table, rows, ttl_ms=ttl_ms)
        if ttl_ms is not None:
            self.scene.ends |= {(table, row): self.scene.now_ms + ttl_ms for row, _ in rows}

    def scan(self, *args: object, **options: object) -> list[Row]:
        self.scans += 1
        return super().scan(*args, **options)  # type: ignore[arg-type]


class Scene:
    """A partition, and the time of day for its owner and for HBase."""

    def __init__(self, layout: Layout) -> None:
        self.data: Data = {}
        self.ends: dict[tuple[str, bytes], int] = {}
        self.layout, self.epochs, self.now_ms = layout, count(1), NOW_MS
        self.open(KEEP)

    def open(self, settings: QueueSettings) -> None:
        """A new owner takes the partition."""
        self.epoch, self.tables = next(self.epochs), Mortal(self)
        self.store = HBaseStore(self.tables, layout=self.layout)
        self.store.open(KEY, self.epoch, settings)

    def put(self, *bodies: bytes) -> None:
        """Each in a batch of its own, a second after the other."""
        for body in bodies:
            self.now_ms += 1000
            store_all(self.store, [batch(first_id_at(self.now_ms), [body], epoch=self.epoch)])

    def trim(self, settings: QueueSettings) -> int:
        """A round of retention of a host; nothing is archived."""
        return self.store.trim(KEY, settings, self.now_ms, *([0] if settings.archive_first else []))

    def later(self, ms: int) -> None:
        """Time goes by, and HBase removes what is due."""
        self.now_ms += ms
        for (table, row), end in self.ends.items():
            if end <= self.now_ms:
                self.data[table].pop(row, None)

    @property
    def bodies(self) -> list[bytes]:
        return bodies_of(self.store)

    def put_two_lives(self, settings: QueueSettings) -> None:
        """Two messages with an hour to live, and behind them one that was stored with these settings."""
        self.trim(AN_HOUR)
        self.put(b"a1", b"a2")
        self.trim(settings)
        self.put(b"b")


@pytest.fixture(params=["rows", "batches"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    found: list[Scene] = []
    before = wall.use(lambda: (found[0].now_ms if found else NOW_MS) / 1000)
    try:
        found.append(Scene(request.param))
        yield found[0]
    finally:
        wall.use(before)


@pytest.mark.parametrize("settings", LONGER.values(), ids=LONGER)
def test_what_hbase_has_removed_is_passed_over_whatever_the_ttl_is_now(scene: Scene, settings: QueueSettings) -> None:
    scene.put_two_lives(settings)
    scene.later(2 * HOUR + MINUTE)
    scene.trim(settings)
    assert scene.bodies == [b"b"]
    assert scene.store.bounds(KEY).messages == scene.store.measure(KEY, 0, 10**18).messages == 1
    scene.open(settings)
    assert scene.bodies == [b"b"]


@pytest.mark.parametrize("settings", LONGER.values(), ids=LONGER)
def test_who_takes_the_partition_afterwards_passes_over_it_too(scene: Scene, settings: QueueSettings) -> None:
    scene.put_two_lives(settings)
    scene.store.close()
    scene.later(2 * HOUR + MINUTE)
    scene.open(settings)
    assert scene.bodies == [b"b"]


@pytest.mark.parametrize("settings", LONGER.values(), ids=LONGER)
def test_all_of_it_may_be_gone(scene: Scene, settings: QueueSettings) -> None:
    scene.trim(AN_HOUR)
    scene.put(b"a1", b"a2")
    last_id = scene.store.bounds(KEY).last_id
    scene.trim(settings)
    scene.later(3 * HOUR)
    scene.trim(settings)
    assert (scene.bodies, scene.store.bounds(KEY)) == ([], Bounds(0, last_id, 0, 0))
    scene.put(b"b")
    assert scene.bodies == [b"b"]


def test_it_is_read_until_half_an_hour_before_hbase_removes_it(scene: Scene) -> None:
    """So clocks may differ, and a round of retention may come late."""
    scene.trim(AN_HOUR)
    scene.put(b"a1", b"a2")
    scene.trim(A_WEEK)
    scene.later(90 * MINUTE - 2000)
    assert scene.trim(A_WEEK) == 0
    assert scene.bodies == [b"a1", b"a2"]
    scene.later(1000)
    scene.trim(A_WEEK)
    assert scene.bodies == [b"a2"], "each at its own time"


@pytest.mark.parametrize("before", [KEEP, A_WEEK], ids=["no ttl", "a longer ttl"])
@pytest.mark.parametrize("settings", LONGER.values(), ids=LONGER)
@pytest.mark.parametrize("reopened", [False, True])
def test_what_stands_before_it_goes_with_it(
    scene: Scene, before: QueueSettings, settings: QueueSettings, reopened: bool
) -> None:
    """A ttl that was shorter for some minutes leaves no hole that nobody can read across."""
    scene.trim(before)
    scene.put(b"long")
    scene.trim(AN_HOUR)
    scene.put(b"short")
    scene.trim(settings)
    scene.put(b"after")
    assert scene.bodies == [b"long", b"short", b"after"]
    scene.later(2 * HOUR + MINUTE)
    if reopened:
        scene.open(settings)
    scene.trim(settings)
    assert scene.bodies == [b"after"]
    assert len(scene.data[TABLE]) == 3, "with the rows of the partition and of the table"


@pytest.mark.parametrize("settings", [KEEP, A_DAY], ids=["no ttl", "the same ttl"])
def test_what_was_acknowledged_behind_it_is_there_for_an_owner_after_a_crash(
    scene: Scene, settings: QueueSettings
) -> None:
    """No checkpoint tells of it: the heads are followed, over a hole that HBase made."""
    scene.trim(KEEP)
    scene.put(b"long")
    scene.trim(A_DAY)
    scene.put(b"a1", b"a2")
    scene.later(24 * HOUR - MINUTE)
    scene.put(b"young")
    scene.trim(settings)
    scene.put(b"younger")
    scene.later(HOUR + 2 * MINUTE)
    scene.open(settings)
    assert scene.bodies == [b"young", b"younger"]
    assert scene.store.bounds(KEY).messages == scene.store.measure(KEY, 0, 10**18).messages == 2


def test_a_batch_that_somebody_else_deleted_is_told_after_a_crash_too(scene: Scene) -> None:
    scene.put(b"a")
    before = set(scene.data[TABLE])
    scene.put(b"b")
    (deleted,) = set(scene.data[TABLE]) - before
    scene.put(b"c")
    del scene.data[TABLE][deleted]
    scene.open(KEEP)
    with pytest.raises(CorruptRecord, match="not there"):
        _ = scene.bodies


def test_the_head_of_a_batch_tells_when_hbase_may_remove_it(scene: Scene) -> None:
    for settings in (KEEP, AN_HOUR, AN_HOUR):
        scene.trim(settings)
        scene.put(b"x")
    heads = [cells[b"batch:head"] for cells in scene.data[TABLE].values() if b"batch:head" in cells]
    ends = [0, scene.now_ms - 1000 + 2 * HOUR, scene.now_ms + 2 * HOUR]
    assert [unpack(head).expires for head in heads] == ends
    assert [int.from_bytes(head[40:48]) for head in heads] == ends
    assert [int.from_bytes(head[56:64]) for head in heads] == [0, *ends[:-1]], "and when that of the one before it"


def test_what_an_owner_stores_first_gets_the_life_that_the_queue_has_then(scene: Scene) -> None:
    scene.open(AN_HOUR)
    scene.put(b"a")
    assert list(scene.ends.values()) == [scene.now_ms + 2 * HOUR]
    scene.open(ARCHIVE_FIRST)
    scene.put(b"b")
    assert len(scene.ends) == 1


@pytest.mark.parametrize("settings", [KEEP, AN_HOUR], ids=["no ttl", "a ttl"])
def test_a_round_of_retention_that_drops_nothing_asks_hbase_for_nothing(scene: Scene, settings: QueueSettings) -> None:
    scene.open(settings)
    scene.put(b"a")
    scene.trim(settings)
    before = scene.tables.scans
    for _ in range(5):
        scene.later(MINUTE)
        scene.trim(settings)
    assert scene.tables.scans == before


def test_a_queue_that_never_had_a_ttl_is_not_scanned_for_retention_at_all(scene: Scene) -> None:
    scene.put(b"a")
    before = scene.tables.scans
    scene.trim(KEEP)
    assert scene.tables.scans == before


def test_what_goes_before_it_was_archived_is_warned_of_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.trim(AN_HOUR)
    scene.put(b"a1", b"a2")
    scene.trim(ARCHIVE_FIRST)
    scene.put(b"b")
    with caplog.at_level(logging.WARNING):
        scene.later(90 * MINUTE - 3000)
        scene.trim(ARCHIVE_FIRST)
        assert not caplog.records
        for _ in range(3):
            scene.later(1000)
            scene.trim(ARCHIVE_FIRST)
    assert scene.bodies == [b"b"]
    (told,) = caplog.messages
    assert "those that are not archived are lost" in told


def test_what_is_archived_goes_without_a_word(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.trim(AN_HOUR)
    scene.put(b"a")
    last_id = scene.store.bounds(KEY).last_id
    scene.trim(ARCHIVE_FIRST)
    scene.put(b"b")
    scene.later(2 * HOUR)
    assert scene.store.trim(KEY, ARCHIVE_FIRST, scene.now_ms, last_id) > 0
    assert (scene.bodies, caplog.messages) == ([b"b"], [])
