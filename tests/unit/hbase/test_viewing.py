"""Who reads a partition's table without owning it sees what its owner sees, up to where that has told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from delivery.hbase import Cells
from delivery.ids import first_id_at
from delivery.messaging.marks import MARKER
from delivery.model import Layout, QueueSettings
from delivery.spark.options import ReadOptions
from delivery.spark.ranges import Span
from delivery.spark.tables import pieces
from delivery.storage.hbase import HBaseStore
from delivery.storage.hbase.place import Place
from delivery.storage.hbase.viewing import View
from tests.hbase_tables import Data, FakeTables
from tests.stores import KEY, NOW_MS, batch, batches_of, store_all

KEEP = QueueSettings()
TABLE = "hoot.g1.orders"
OLD, NEW = first_id_at(NOW_MS - 3_600_000), first_id_at(NOW_MS)


class Site:
    """A table, its owner, and readers beside it."""

    def __init__(self, layout: Layout) -> None:
        self.data: Data = {}
        self.layout: Layout = layout
        self.owner = self.opened(1)

    def opened(self, epoch: int) -> HBaseStore:
        store = HBaseStore(FakeTables(self.data), layout=self.layout)
        store.open(KEY, epoch, KEEP)
        return store

    def place(self, tables: FakeTables | None = None) -> Place:
        return Place(tables or FakeTables(self.data), TABLE, KEY)

    def seen(self, until: int, bytes_max: int = 1 << 20) -> list[bytes]:
        return list(read(View(self.place(), until), bytes_max))


@pytest.fixture(params=["rows", "batches"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(request.param)


def read(view: View, bytes_max: int = 1 << 20, after: int = 0) -> Iterator[bytes]:
    while (chunk := view.read(after, bytes_max)) is not None:
        at = 0
        for header in chunk.headers:
            yield chunk.data[at : at + header.length]
            at += header.length
        after = chunk.last_id


@pytest.mark.parametrize("bytes_max", [1, 1 << 20])
def test_it_sees_all_batches_of_all_epochs_whether_a_checkpoint_names_them_or_not(site: Site, bytes_max: int) -> None:
    store_all(site.owner, [batch(10, [b"a", b"b"]), batch(20, [b"c"])])
    assert site.seen(20, bytes_max) == batches_of(site.owner), "nothing but the heads tells of them"
    second = site.opened(2)
    store_all(second, [batch(30, [b"d"], epoch=2)])
    assert site.seen(30, bytes_max) == batches_of(second)
    second.close()
    assert len(site.seen(30, bytes_max)) == 3


def test_it_looks_no_further_than_it_was_told(site: Site) -> None:
    store_all(site.owner, [batch(10), batch(20), batch(30)])
    assert len(site.seen(20)) == 2


def test_what_an_owner_wrote_when_another_had_sealed_is_not_there(site: Site) -> None:
    store_all(site.owner, [batch(10)])
    new = site.opened(2)
    assert site.owner.append([batch(20, [b"late"])]) != [None]
    store_all(new, [batch(30, epoch=2)])
    assert site.seen(30) == batches_of(new)


def test_of_a_partition_that_nobody_has_opened_nothing_is_there() -> None:
    data: Data = {TABLE: {}}
    assert list(read(View(Place(FakeTables(data), TABLE, KEY), 99))) == []


class Trimming(FakeTables):
    """Retention comes while a reader has rows of a scan in its hands."""

    owner: HBaseStore | None = None

    def scan(self, *args: object, **options: object) -> list[tuple[bytes, Cells]]:
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.trim(KEY, QueueSettings(ttl_seconds=60), NOW_MS)
        return super().scan(*args, **options)  # type: ignore[arg-type]


def test_what_retention_took_while_it_was_read_is_not_passed_over(site: Site) -> None:
    store_all(site.owner, [batch(OLD), batch(NEW)])
    tables = Trimming(site.data)
    view = View(site.place(tables), NEW)
    tables.owner = site.owner
    assert list(read(view)) == [], "the hosts are asked, who may have it in an archive"
    assert len(list(read(View(site.place(), NEW), after=NEW - 1))) == 1


def options(**changed: Sequence[str] | str) -> ReadOptions:
    return ReadOptions("", ("orders",), hbase="gate", **changed)  # type: ignore[arg-type]


def sent(site: Site, asked: ReadOptions) -> list[tuple[bytes, int]]:
    return list(pieces(FakeTables(site.data), asked, "g1", Span("orders", KEY.partition, 0, 30), 1 << 20))


def test_a_task_gets_what_a_host_would_send(site: Site) -> None:
    mine, other, aside = batch(10, topic="a"), batch(20, topic="b"), batch(30, topic="hoot.mark")
    store_all(site.owner, [mine, other, aside])
    assert sent(site, options()) == [(mine.batch + other.batch, 30)]
    assert sent(site, options(topics=("b",))) == [(other.batch, 30)]
    assert sent(site, options(topics=("none",))) == [(b"", 30)]


def test_what_stands_for_messages_elsewhere_is_read_through_a_host(site: Site) -> None:
    """A host puts the bodies that were stored before in a marker's place."""
    first = batch(10, topic="a")
    store_all(site.owner, [first, batch(20, topic=MARKER), batch(30, topic="a")])
    asked = Span("orders", KEY.partition, 0, 30)
    assert list(pieces(FakeTables(site.data), options(), "g1", asked, 1)) == [(first.batch, 10)]
    assert sent(site, options()) == []


def test_where_a_table_cannot_be_read_nothing_is_sent_and_nothing_raised(site: Site) -> None:
    store_all(site.owner, [batch(10)])
    assert sent(site, options(hbase_prefix="other")) == []
