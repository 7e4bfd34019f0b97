"""The MetaStore in HBase: rows and cells that are not Hoot's, tables of others, ranges of rows, removals."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, strategies as st

from delivery.errors import (
    BadVersion,
    CorruptRecord,
    LayoutMismatch,
    MetadataUnavailable,
)
from delivery.metastore.errors import KeyExists, NoKey
from delivery.metastore.tables import cells
from delivery.metastore.tables.base import MetastoreScannableTable, Put
from delivery.metastore.tables.hbase import HBaseMetaStore
from delivery.metastore.tables.memory import MemoryMetaStore
from delivery.metastore.tables.ranges import Order
from delivery.metastore.tables.rows import KEPT_MS
from delivery.metastore.tables.values import NONE, Value
from delivery.metastore.tables.versions import Version, Versioned
from tests.hbase_tables import Data, FakeTables
from tests.metastore_hbase import TABLE, Faulty, opened
from tests.metastore_tables import ANY, FULL, NEW, fill, found, keys, refused

ONE = Value({"a": b"1"})


# -- what should not be there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [b"", b"foreign", b"+", b"\x01\x80", b"+" + bytes(12), b"+" + bytes(12) + b"\x01\xff"])
def test_a_damaged_entry_is_told_by_table_and_key_and_can_be_replaced(
    data: Data, table: MetastoreScannableTable, cell: bytes
) -> None:
    fill(table, ["j", "l"])
    for get_over in (
        lambda version: table.put("k", FULL, version, whole=True),
        lambda _: table.put("k", FULL, ANY, whole=True),
        lambda version: table.remove("k", version),
    ):
        data[TABLE][cells.row_of("t", "k")] = {cells.COLUMN: cell}
        with pytest.raises(CorruptRecord, match=r"entry 'k' of table t"):
            table.get("k")
        assert [type(item.found) for item in table.open_cursor().read_entries(9)] == [
            Versioned, CorruptRecord, Versioned,
        ]  # fmt: skip
        assert refused(table.put, "k", FULL, NEW) is KeyExists
        assert refused(table.put, "k", FULL, ANY) is CorruptRecord, "there is nothing sound to merge with"
        version = table.get("k", NONE).version
        assert refused(table.remove, "k", Version(version.number + 1)) is BadVersion
        get_over(version)
        assert found(table, "k") is None or table.get("k").value == FULL


def test_a_row_that_no_key_has_is_passed_over(data: Data, table: MetastoreScannableTable) -> None:
    fill(table, ["j", "l"])
    data[TABLE][b"t\0k\xff"] = {cells.COLUMN: b"foreign"}
    assert keys(table.open_cursor()) == ["j", "l"]
    assert keys(table.open_cursor(order=Order.DESC)) == ["l", "j"]
    assert table.open_cursor().read_keys(9) == ["j", "l"]


def test_the_table_of_another_is_not_touched(data: Data) -> None:
    opened(FakeTables(data)).create_table("t").put("k", ONE, NEW)
    record = data[TABLE][cells.STORE_ROW]
    for other, said in (
        (b'{"cluster":"c","version":2}', "version 2"), (b"{}", "cannot be read"), (b"x", "cannot be read"),
        (b'{"cluster":"d","version":1}', "belongs to the cluster d, and this is c"), (None, "does not say whose"),
    ):  # fmt: skip
        data[TABLE].pop(cells.STORE_ROW, None)
        data[TABLE] |= {} if other is None else {cells.STORE_ROW: {cells.COLUMN: other}}
        before = {row: dict(columns) for row, columns in data[TABLE].items()}
        store = HBaseMetaStore(FakeTables(data), "p", "c")
        for call in (store.prepare, partial(store.create_table, "t"), partial(store.drop_table, "t")):
            with pytest.raises(LayoutMismatch, match=said):
                call()
        assert data[TABLE] == before
    data[TABLE][cells.STORE_ROW] = record
    with pytest.raises(LayoutMismatch, match=r"has no table p\.metastore"):
        HBaseMetaStore(FakeTables({}), "p", "c").check()
    foreign = FakeTables(data)
    foreign.families_of[TABLE] = {"cf"}
    with pytest.raises(LayoutMismatch, match="its families are cf"):
        opened(foreign)
    passing = FakeTables(data)
    passing.life = 86_400
    with pytest.raises(
        LayoutMismatch, match=r"would remove this cluster's metadata in p\.metastore 86400 s after each"
    ):
        opened(passing)


def test_a_dropped_table_of_hbase_is_not_taken_for_an_empty_one(data: Data, table: MetastoreScannableTable) -> None:
    fill(table, ["k"])
    data.clear()
    for call in (lambda: table.get("k"), lambda: table.put("k", ONE, NEW), lambda: keys(table.open_cursor())):
        assert refused(call) is MetadataUnavailable
    assert data == {}


def test_a_damaged_record_of_a_table_is_told(data: Data, table: MetastoreScannableTable) -> None:
    data[TABLE][b"t"] = {cells.COLUMN: b"x"}
    with pytest.raises(CorruptRecord, match=r"row 't' of HBase's table p\.metastore"):
        opened(FakeTables(data)).create_table("t")


# -- ranges ---------------------------------------------------------------------------------------------------------

_KEYS = st.text("\0\x01ab\U0010ffff", min_size=1, max_size=3)


@given(st.sets(_KEYS, max_size=12), st.lists(st.none() | _KEYS, min_size=2, max_size=2), st.booleans(), st.booleans(),
       st.sampled_from(list(Order)))  # fmt: skip
def test_every_range_is_what_it_is_in_memory(
    names: set[str], ends: list[str | None], first_in: bool, last_in: bool, order: Order
) -> None:
    tables = [opened(FakeTables({})).create_scannable_table("t"), MemoryMetaStore().create_scannable_table("t")]
    first, last = ends
    if first is not None and last is not None and (first > last) == (order is Order.ASC):
        first, last = last, first
    for one in tables:
        one.put_many([Put(name, ONE, NEW) for name in names])
    here, there = (one.open_cursor(first, first_in, last, last_in, order=order) for one in tables)
    assert keys(here, 2) == keys(there, 2)


def test_what_was_removed_is_no_more_for_anybody(data: Data, table: MetastoreScannableTable) -> None:
    fill(table, ["j", "k", "l"])
    table.remove("k", ANY)
    assert data[TABLE][cells.row_of("t", "k")][cells.COLUMN].startswith(cells.REMOVED)
    assert keys(table.open_cursor()) == ["j", "l"]
    assert table.open_cursor().read_keys(9) == ["j", "l"]
    assert table.get_many(["k"], NONE) == [None]
    assert refused(table.remove, "k", ANY) is NoKey


def test_what_was_removed_is_deleted_for_good_an_hour_later(
    hbase: Faulty, data: Data, table: MetastoreScannableTable
) -> None:
    store = opened(hbase)
    fill(table, ["i", "j", "k", "l"])
    for key in ("i", "j", "k"):
        table.remove(key, ANY)
    hbase.now_ms += KEPT_MS
    table.put("j", ONE, NEW)
    assert store.sweep() == 0, "it is not longer than an hour ago"
    hbase.now_ms += KEPT_MS - 1
    assert store.sweep() == 0, "somebody has looked less than an hour ago"
    table.remove("l", ANY)
    hbase.now_ms += KEPT_MS
    assert store.sweep() == 2
    rows = {row for row, columns in data[TABLE].items() if cells.COLUMN in columns and row.startswith(b"t\0")}
    assert rows == {cells.row_of("t", "j"), cells.row_of("t", "l")}
    assert table.put("i", ONE, NEW) == Version(0)
    assert keys(table.open_cursor()) == ["i", "j"]
