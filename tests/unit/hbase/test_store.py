"""Fencing, lost answers and half-done requests of the store in HBase, each placed exactly; HBase's tables in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from delivery.errors import Fenced, HootError, StorageUnavailable
from delivery.hbase import Cells, Row
from delivery.model import Layout, QueueSettings
from delivery.storage.base import Append, PartitionKey
from delivery.storage.hbase import HBaseStore
from delivery.storage.sealed import EpochIds
from tests.hbase_tables import Data, FakeTables
from tests.stores import KEY, NOW_MS, OTHER, batch, batches_of, bodies_of, store_all

KEEP = QueueSettings()
TABLE = "hoot.g1.orders"


class Site:
    """Tables, and stores of as many hosts as are wanted."""

    def __init__(self, layout: Layout = "rows") -> None:
        self.data: Data = {}
        self.layout: Layout = layout

    def host(self, epoch: int | None = None) -> tuple[FakeTables, HBaseStore]:
        """A host, which opens the partition under `epoch`."""
        tables = FakeTables(self.data)
        store = HBaseStore(tables, layout=self.layout)
        if epoch is not None:
            store.open(KEY, epoch, KEEP)
        return tables, store


@pytest.fixture(params=["rows", "batches"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(request.param)


def kinds(answers: Sequence[HootError | None]) -> list[type]:
    return [type(answer) for answer in answers]


class Interrupted(FakeTables):
    """Something happens between the put of a group and the look at the owner."""

    then: Callable[[], object] | None = None

    def get_all(self, table: str, rows: Sequence[bytes], columns: Sequence[bytes]) -> dict[bytes, Cells]:
        then, self.then = self.then, None
        if then is not None:
            then()
        return super().get_all(table, rows, columns)


def interrupted(site: Site, epoch: int) -> tuple[Interrupted, HBaseStore]:
    tables = Interrupted(site.data)
    store = HBaseStore(tables, layout=site.layout)
    store.open(KEY, epoch, KEEP)
    return tables, store


def test_what_was_put_before_the_fence_counts_even_if_its_writer_looks_after_it(site: Site) -> None:
    tables, old = interrupted(site, 1)
    _, new = site.host()
    tables.then = lambda: new.open(KEY, 2, KEEP)
    assert old.append([batch(10, [b"a"]), batch(11, [b"b"])]) == [None, None]
    assert bodies_of(new) == bodies_of(old) == [b"a", b"b"]
    assert kinds(old.append([batch(12)])) == [Fenced]


def test_what_was_put_after_the_seal_never_counts_and_goes_at_the_next_opening(site: Site) -> None:
    _, old = site.host(1)
    store_all(old, [batch(10, [b"a"])])
    _, new = site.host(2)
    assert kinds(old.append([batch(11, [b"late"])])) == [Fenced]
    assert bodies_of(new) == [b"a"]
    store_all(new, [batch(11, [b"b"], epoch=2)])
    assert bodies_of(new) == [b"a", b"b"]
    rows = len(site.data[TABLE])
    _, third = site.host(3)
    assert bodies_of(third) == [b"a", b"b"]
    assert len(site.data[TABLE]) == rows, "both rows of id 11 lie before the last id"
    assert third.open(KEY, 4, KEEP).sealed == (EpochIds(1, 10, 10), EpochIds(2, 11, 11))


def test_what_lies_behind_the_last_id_and_does_not_count_is_deleted(site: Site) -> None:
    _, old = site.host(1)
    store_all(old, [batch(10, [b"a"])])
    before = {row: dict(cells) for row, cells in site.data[TABLE].items()}
    site.host(2)
    old.append([batch(50, [b"late"])])
    assert site.data[TABLE].keys() != before.keys()
    site.host(3)
    assert site.data[TABLE].keys() == before.keys()


def test_between_the_fence_and_the_seal_the_outcome_is_unknown(site: Site) -> None:
    tables, old = interrupted(site, 1)
    other, new = site.host()

    def fence_only() -> None:
        other.lost_answers = 2  # of the fence, which is read again, and of the seal
        with pytest.raises(StorageUnavailable):
            new.open(KEY, 2, KEEP)
        del site.data[TABLE][KEY.partition.to_bytes(2, "big")][b"batch:checkpoint"]

    tables.then = fence_only
    assert kinds(old.append([batch(10, [b"a"])])) == [StorageUnavailable]


def test_a_host_that_dies_between_fence_and_seal_leaves_what_was_acknowledged(site: Site) -> None:
    _, first = site.host(1)
    store_all(first, [batch(10, [b"a"])])
    row = KEY.partition.to_bytes(2, "big")
    sealed = site.data[TABLE][row][b"batch:checkpoint"]
    site.host(2)
    site.data[TABLE][row] = {**site.data[TABLE][row], b"batch:checkpoint": sealed}
    _, third = site.host(3)
    assert bodies_of(third) == [b"a"]


def test_a_fence_whose_answer_was_lost_is_known_again(site: Site) -> None:
    site.host(1)
    tables, store = site.host()
    tables.lost_answers = 1
    store.open(KEY, 2, KEEP)
    store_all(store, [batch(10, epoch=2)])


def test_a_seal_whose_answer_was_lost_needs_a_newer_epoch(site: Site) -> None:
    _, first = site.host(1)
    store_all(first, [batch(10, [b"a"])])
    tables, store = site.host()
    tables.lost_answers = 2
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            store.open(KEY, 2, KEEP)
    assert store.open(KEY, 3, KEEP).last_id == 10
    assert bodies_of(store) == [b"a"]


class Behind(FakeTables):
    """A region server whose clock is behind: what it puts over an older value cannot be seen."""

    def check_and_put(
        self, table: str, row: bytes, check: tuple[bytes, bytes | None], column: bytes, value: bytes
    ) -> bool:
        return True if column == b"batch:checkpoint" else super().check_and_put(table, row, check, column, value)


def test_a_seal_that_a_slow_clock_hides_is_none(site: Site) -> None:
    _, first = site.host(1)
    store_all(first, [batch(10, [b"a"])])
    with pytest.raises(StorageUnavailable, match="clocks"):
        HBaseStore(Behind(site.data), layout=site.layout).open(KEY, 2, KEEP)
    assert bodies_of(site.host(3)[1]) == [b"a"]


def test_an_epoch_that_another_store_has_used_cannot_be_opened(site: Site) -> None:
    site.host(5)
    with pytest.raises(Fenced):
        site.host(5)


@pytest.mark.parametrize("arrived", range(8))
def test_of_a_request_that_arrived_in_part_only_whole_batches_in_order_are_found(site: Site, arrived: int) -> None:
    tables, store = site.host(1)
    store_all(store, [batch(10, [b"a", b"b"])])
    group = [batch(20, [b"c", b"d", b"e"]), batch(30, [b"f", b"g"], producer=(7, 1)), batch(40, [b"h"])]
    tables.rows_until_loss = arrived
    answers = store.append(group)
    if arrived > 5 or (site.layout == "batches" and arrived > 2):
        assert answers == [None] * 3
        return
    assert kinds(answers) == [StorageUnavailable] * 3
    assert kinds(store.append([batch(50)])) == [StorageUnavailable]
    assert bodies_of(store) == [b"a", b"b"], "nobody sees what may not count"
    ends = [0, 1, 2] if site.layout == "batches" else [0, 3, 5]
    whole = max(number for number, end in enumerate(ends) if arrived >= end)
    _, next_owner = site.host()
    state = next_owner.open(KEY, 2, KEEP)
    assert batches_of(next_owner)[1:] == [item.batch for item in group[:whole]]
    assert [one.producer_id for one in state.producers] == [7] * (whole >= 2)
    store_all(next_owner, [batch(60, [b"z"], epoch=2)])
    tables.arrive()
    for owner in (next_owner, site.host(3)[1]):
        assert batches_of(owner)[1:-1] == [item.batch for item in group[:whole]], "what arrives late does not count"


def test_a_batch_behind_a_hole_does_not_count(site: Site) -> None:
    """Of one request the rows of the first batch did not arrive, and those of the second did."""
    tables, store = site.host(1)
    tables.rows_until_loss = 0
    store.append([batch(10, [b"a"]), batch(20, [b"b"])])
    tables.late = tables.late[1:]
    tables.arrive()
    _, next_owner = site.host(2)
    assert bodies_of(next_owner) == []


def test_an_epoch_under_which_a_write_failed_is_never_opened_again(site: Site) -> None:
    tables, store = site.host(1)
    tables.rows_until_loss = 0
    store.append([batch(10)])
    with pytest.raises(StorageUnavailable, match="newer"):
        store.open(KEY, 1, KEEP)
    store.release(KEY)
    with pytest.raises(StorageUnavailable, match="newer"):
        store.open(KEY, 1, KEEP)
    store.open(KEY, 2, KEEP)


def test_a_failed_table_leaves_the_others_alone(site: Site) -> None:
    _, store = site.host(1)
    store.open(OTHER, 1, KEEP)
    other = PartitionKey("bills", "g1", 0)
    store.open(other, 1, KEEP)
    del site.data["hoot.g1.bills"]
    answers = store.append([batch(10), batch(10, key=other), batch(10, key=OTHER)])
    assert kinds(answers) == [type(None), Fenced, type(None)]


def test_partitions_whose_cells_get_another_life_go_in_requests_of_their_own(site: Site) -> None:
    lives: list[tuple[int, int | None]] = []

    class Noting(FakeTables):
        def put(self, table: str, rows: Sequence[Row], *, ttl_ms: int | None = None) -> None:
            lives.append((rows[0][0][1], ttl_ms))
            super().put(table, rows, ttl_ms=ttl_ms)

    store = HBaseStore(Noting(site.data), layout=site.layout)
    for key in (KEY, OTHER):
        store.open(key, 1, KEEP)
    store.trim(KEY, QueueSettings(ttl_seconds=60), NOW_MS)
    store_all(store, [batch(10), batch(10, key=OTHER)])
    store.trim(KEY, KEEP, NOW_MS)
    store_all(store, [batch(20), batch(20, key=OTHER)])
    assert lives == [(KEY.partition, 3_660_000), (OTHER.partition, None), (KEY.partition, None)]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_arrives_when_what_was_acknowledged_is_there_in_order(site: Site, seed: int) -> None:
    """Owners come and go, requests arrive in part or late, answers are lost. A model keeps what must be there."""
    draw = random.Random(seed)
    acknowledged: list[bytes] = []
    unknown: set[bytes] = set()
    late: list[FakeTables] = []
    next_id = 1
    for epoch in range(1, 12):
        tables, store = site.host()
        if draw.random() < 0.3:
            tables.lost_answers = draw.randint(1, 2)
        try:
            store.open(KEY, epoch, KEEP)
        except StorageUnavailable:
            continue
        for _ in range(draw.randint(0, 4)):
            group: list[Append] = []
            for _ in range(draw.randint(1, 3)):
                group.append(batch(next_id, [b"%d" % n for n in range(draw.randint(1, 4))], epoch=epoch))
                next_id = group[-1].header.last_id + draw.randint(1, 3)
            if draw.random() < 0.3:
                tables.rows_until_loss = draw.randint(0, 8)
            for item, answer in zip(group, store.append(group), strict=True):
                if answer is None:
                    acknowledged.append(item.batch)
                else:
                    assert isinstance(answer, StorageUnavailable)
                    unknown.add(item.batch)
            if late and draw.random() < 0.3:
                late.pop(draw.randrange(len(late))).arrive()
        late.append(tables)
        if draw.random() < 0.5:
            store.release(KEY)
    _, last = site.host(100)
    found = batches_of(last)
    assert [one for one in found if one in acknowledged] == acknowledged
    assert set(found) <= set(acknowledged) | unknown
    assert last.bounds(KEY).messages == last.count(KEY, 0, 10**12)
