"""Cursors of a MetaStore, whatever keeps it: whole tables and ranges, in batches (seed 001)."""

from __future__ import annotations

from typing import Any

import pytest

from delivery.errors import ScannerClosed
from delivery.metastore.errors import IllegalOperation
from delivery.metastore.tables.base import (
    MetastoreScannableTable,
    MetastoreTable,
    Put,
    Remove,
)
from delivery.metastore.tables.cursors import clean_table
from delivery.metastore.tables.ranges import Order
from delivery.metastore.tables.values import (
    ALL,
    NONE,
    Fields,
    Value,
)
from delivery.metastore.tables.versions import Version
from tests.metastore_tables import ANY, LETTERS, NEW, fill, items, keys, refused

# -- testOpenCursor -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [ALL, {"counter"}, NONE])
def test_the_cursor_of_the_whole_table_gives_every_entry_once(table: MetastoreTable, fields: Fields) -> None:
    fill(table, LETTERS)
    everything = items(table.open_cursor(fields=fields))
    assert sorted(item.key for item in everything) == list(LETTERS)
    for item in everything:
        full = Value({"name": item.key.encode(), "counter": b"1"})
        assert (item.value, item.version) == (full.project(fields), Version(0))


def between(low: str, low_in: bool, high: str, high_in: bool) -> list[str]:
    return [key for key in LETTERS if low <= key <= high and (low_in or key != low) and (high_in or key != high)]


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("first_in", [True, False])
@pytest.mark.parametrize("last_in", [True, False])
def test_a_range_begins_and_ends_where_it_says_in_both_orders(
    scannable: MetastoreScannableTable, order: Order, first_in: bool, last_in: bool
) -> None:
    fill(scannable, LETTERS)
    if order is Order.ASC:
        cursor = scannable.open_cursor("l", first_in, "u", last_in, order=order)
        assert keys(cursor) == between("l", first_in, "u", last_in)
    else:
        cursor = scannable.open_cursor("u", first_in, "l", last_in, order=order)
        assert keys(cursor) == between("l", last_in, "u", first_in)[::-1]


RANGES: list[tuple[str | None, str | None, Order, str]] = [
    ("a", "z", Order.ASC, LETTERS),
    ("l", "z", Order.ASC, LETTERS[6:]),
    ("a", "u", Order.ASC, LETTERS[:16]),
    (None, "u", Order.ASC, LETTERS[:16]),
    (None, "l", Order.DESC, LETTERS[6:][::-1]),
    ("u", None, Order.ASC, "uvwx"),
    ("h", None, Order.DESC, "hgf"),
    (None, None, Order.ASC, LETTERS),
    (None, None, Order.DESC, LETTERS[::-1]),
    ("z", "a", Order.DESC, LETTERS[::-1]),
    ("ll", "m\x00", Order.ASC, "m"),
    # Hedwig's table moved the ends of these to the nearest keys, and then refused them.
    ("a", "c", Order.ASC, ""),
    ("c", "a", Order.DESC, ""),
    ("y", "z", Order.ASC, ""),
    ("z", "y", Order.DESC, ""),
    ("gg", "gz", Order.ASC, ""),
    ("gz", "gg", Order.DESC, ""),
    ("y", None, Order.ASC, ""),
    ("a", None, Order.DESC, ""),
]


@pytest.mark.parametrize(("first", "last", "order", "expected"), RANGES)
def test_ends_beyond_the_keys_and_open_ends_are_fine(
    scannable: MetastoreScannableTable, first: str | None, last: str | None, order: Order, expected: str
) -> None:
    assert keys(scannable.open_cursor(first, True, last, True, order=order)) == [], "of an empty table, too"
    fill(scannable, LETTERS)
    for inclusive in (True, False):
        cursor = scannable.open_cursor(first, inclusive, last, inclusive, order=order)
        wanted = [key for key in expected if inclusive or key not in (first, last)]
        assert keys(cursor) == wanted
    cursor = scannable.open_cursor(first, True, last, True, order=order, fields={"name"})
    assert [item.value for item in items(cursor)] == [Value({"name": key.encode()}) for key in expected]


def test_a_range_of_one_key_is_that_key_unless_an_end_leaves_it_out(scannable: MetastoreScannableTable) -> None:
    fill(scannable, LETTERS)
    for order in Order:
        for first_in in (True, False):
            for last_in in (True, False):
                cursor = scannable.open_cursor("m", first_in, "m", last_in, order=order)
                assert keys(cursor) == (["m"] if first_in and last_in else [])


def test_ranges_the_wrong_way_round_are_illegal_whether_or_not_there_are_keys(
    scannable: MetastoreScannableTable,
) -> None:
    def check() -> None:
        assert refused(scannable.open_cursor, "a", True, "z", True, order=Order.DESC) is IllegalOperation
        assert refused(scannable.open_cursor, "z", True, "a", True, order=Order.ASC) is IllegalOperation
        none: Any = None
        assert refused(scannable.open_cursor, "a", True, "z", True, order=none) is IllegalOperation
        assert refused(scannable.open_cursor, 7, True, "z", True) is IllegalOperation

    check()
    fill(scannable, LETTERS)
    check()


def test_a_batch_is_never_larger_than_asked_for(table: MetastoreTable) -> None:
    fill(table, LETTERS)
    with table.open_cursor() as cursor:
        assert cursor.read_entries(0) == []
        assert refused(cursor.read_entries, -1) is IllegalOperation
        assert len(cursor.read_entries(1)) == 1
        assert len(cursor.read_entries(100)) == len(LETTERS) - 1
        assert not cursor.has_more_entries()


def test_keys_are_read_without_their_entries(table: MetastoreTable) -> None:
    names = [f"k{at:04}" for at in range(500)]
    fill(table, names)
    found: list[str] = []
    with table.open_cursor() as cursor:
        assert cursor.read_keys(0) == []
        assert refused(cursor.read_keys, -1) is IllegalOperation
        first = cursor.read_entries(10)
        while cursor.has_more_entries():
            part = cursor.read_keys(70)
            assert 0 < len(part) <= 70
            found += part
        assert cursor.read_keys(1) == []
    assert sorted([item.key for item in first] + found) == names


def test_a_closed_cursor_reads_no_more(table: MetastoreTable) -> None:
    fill(table, LETTERS)
    cursor = table.open_cursor()
    assert len(cursor.read_entries(5)) == 5
    cursor.close()
    cursor.close()
    assert refused(cursor.has_more_entries) is ScannerClosed
    assert refused(cursor.read_entries, 5) is ScannerClosed
    assert refused(cursor.read_keys, 5) is ScannerClosed


def test_a_batch_of_large_values_is_cut_but_the_rest_comes(table: MetastoreTable) -> None:
    big = Value({"a": b"x" * 66_000})
    assert set(table.put_many([Put(f"k{at:03}", big, NEW) for at in range(70)])) == {Version(0)}
    with table.open_cursor() as cursor:
        assert len(cursor.read_entries(70)) < 70
    assert sorted(keys(table.open_cursor(), 70)) == [f"k{at:03}" for at in range(70)]


def test_an_entry_that_a_cursor_gives_is_as_it_was_at_one_moment(scannable: MetastoreScannableTable) -> None:
    """Hedwig's cursor copied the keys but not the values: a later put came with the version of an earlier one."""
    fill(scannable, LETTERS)
    with scannable.open_cursor() as cursor:
        first = cursor.read_entries(3)
        scannable.put("f", Value({"name": b"later"}), ANY)
        scannable.put("w", Value({"name": b"later"}), ANY)
        scannable.remove("x", ANY)
        rest = cursor.read_entries(100)
        assert not cursor.has_more_entries()
    assert (first[0].value["name"], first[0].version) == (b"f", Version(0))
    assert [item.key for item in rest] == list(LETTERS[3:-1]), "what was removed before its batch does not come"
    assert (rest[-1].value["name"], rest[-1].version) == (b"later", Version(1))


def test_a_cursor_goes_on_behind_keys_that_others_remove_and_among_those_they_add(
    scannable: MetastoreScannableTable,
) -> None:
    names = [f"k{at:05}" for at in range(3000)]
    fill(scannable, names[::2])
    for order in Order:
        with scannable.open_cursor(order=order) as cursor:
            seen = [item.key for item in cursor.read_entries(200)]
            scannable.remove_many([Remove(key, ANY) for key in seen])
            fill(scannable, names[1::2])
            while cursor.has_more_entries():
                seen += [item.key for item in cursor.read_entries(200)]
        assert seen == sorted(set(seen), reverse=order is Order.DESC)
        assert set(seen) >= set(names[::2]), "what was there all the time comes exactly once"
        clean_table(scannable, 500)
        fill(scannable, names[::2])
