"""What HBase refuses, or what somebody did to it: typed errors, and nothing is half-made."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from delivery.errors import Fenced, HootError, MessagesGone, StorageUnavailable
from delivery.hbase import CellTooLarge, Row
from delivery.hbase.errors import Denied
from delivery.model import Layout, QueueSettings
from delivery.storage.hbase import HBaseStore
from tests.hbase_tables import Data, FakeTables
from tests.stores import KEY, OTHER, batch, bodies_of, store_all

KEEP = QueueSettings()
TABLE = "hoot.g1.orders"


class Refusing(FakeTables):
    """HBase refuses whatever changes anything."""

    def __init__(self, data: Data, error: HootError) -> None:
        super().__init__(data)
        self._error = error

    def create(self, table: str, families: Sequence[str], compression: str = "NONE") -> None:
        raise self._error

    def check_and_put(self, *_: object) -> bool:
        raise self._error


class SmallCells(FakeTables):
    """HBase takes no cell of more than some bytes, and a request with such a one in part."""

    limit = 1000
    tells = True

    def put(self, table: str, rows: Sequence[Row], *, ttl_ms: int | None = None) -> None:
        for number, (_, cells) in enumerate(rows):
            if max(map(len, cells.values())) > self.limit:
                super().put(table, rows[:number])
                raise CellTooLarge("Cell[] with size … exceeds the limit", self.limit if self.tells else None)
        super().put(table, rows, ttl_ms=ttl_ms)


@pytest.fixture(params=["rows", "batches"])
def layout(request: pytest.FixtureRequest) -> Layout:
    found: Layout = request.param
    return found


def opened(data: Data, layout: Layout, epoch: int) -> HBaseStore:
    store = HBaseStore(FakeTables(data), layout=layout)
    store.open(KEY, epoch, KEEP)
    return store


def kinds(answers: Sequence[HootError | None]) -> list[type]:
    return [type(answer) for answer in answers]


def test_a_table_that_was_there_and_is_gone_is_not_made_anew(data: Data, layout: Layout) -> None:
    store = opened(data, layout, 1)
    store_all(store, [batch(10)])
    gone = data.pop(TABLE)
    assert kinds(store.append([batch(20)])) == [Fenced]
    for epoch in (2, 3):
        with pytest.raises(MessagesGone, match=f"the table {TABLE} of HBase is not there any more"):
            store.open(KEY, epoch, KEEP)
    assert data == {}
    data[TABLE] = gone
    store.open(KEY, 4, KEEP)
    assert bodies_of(store) == [b"body"]


def test_what_hbase_denies_is_told_and_nothing_is_half_made(data: Data, layout: Layout) -> None:
    denied = Refusing(data, Denied("HBase denies permission: AccessDeniedException: no"))
    with pytest.raises(Denied):
        HBaseStore(denied, layout=layout).open(KEY, 1, KEEP)
    assert data == {}
    opened(data, layout, 1)
    before = dict(data[TABLE])
    store = HBaseStore(denied, layout=layout)
    with pytest.raises(Denied):
        store.open(KEY, 2, KEEP)
    assert data[TABLE] == before


@pytest.mark.parametrize("tells", [True, False])
def test_a_message_above_the_limit_of_a_cell_is_refused_and_the_others_are_asked_for_again(
    data: Data, layout: Layout, tells: bool
) -> None:
    """A region server tells its limit, a gateway does not tell its own."""
    tables = SmallCells(data)
    tables.tells = tells
    store = HBaseStore(tables, layout=layout)
    store.open(KEY, 1, KEEP)
    store.open(OTHER, 1, KEEP)
    group = [batch(10, [b"a"]), batch(20, [b"b", bytes(2000)]), batch(30, [b"c"]), batch(10, [b"d"], key=OTHER)]
    assert kinds(store.append(group)) == [
        StorageUnavailable, CellTooLarge, StorageUnavailable, StorageUnavailable,
    ]  # fmt: skip
    store.open(KEY, 2, KEEP)
    assert bodies_of(store) == [b"a"]
    store_all(store, [batch(40, [b"c"], epoch=2)])
    assert bodies_of(opened(data, layout, 3)) == [b"a", b"c"]
