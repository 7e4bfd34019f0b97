"""The tables of a MetaStore in ZooKeeper: pages that split and join, and how few requests it takes."""

from __future__ import annotations

import itertools

import pytest
import trio

from delivery.errors import BadVersion, CorruptRecord
from delivery.metastore.errors import NoKey, TableFull
from delivery.metastore.tables import pages
from delivery.metastore.tables.aio import AsyncMetaStore
from delivery.metastore.tables.base import (
    MetastoreScannableTable,
    Put,
    Remove,
)
from delivery.metastore.tables.cursors import clean_table
from delivery.metastore.tables.memory import MemoryMetaStore
from delivery.metastore.tables.ranges import Order
from delivery.metastore.tables.values import NONE, Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from tests.metastore_pages import ROOT, SMALL, all_keys, check_pages, names, put_all, rest_of
from tests.metastore_tables import ANY, NEW
from tests.znodes import FakeZNodes

# -- pages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arranged", ["ascending", "descending", "scattered"])
def test_pages_split_as_keys_come_and_join_as_they_go(
    zk: FakeZNodes, table: MetastoreScannableTable, arranged: str
) -> None:
    keys = names(6000)
    orders = {"ascending": keys, "descending": keys[::-1], "scattered": [keys[at * 7919 % 6000] for at in range(6000)]}
    put_all(table, orders[arranged])
    lows = check_pages(zk, keys)
    assert 6000 * 43 / pages.PAGE_BYTES < len(lows) < 6000 * 43 / pages.PAGE_BYTES * 2.5
    assert all_keys(table) == keys
    assert all_keys(table, Order.DESC) == keys[::-1]
    left = keys[::500]
    assert set(table.remove_many([Remove(key, Version(0)) for key in orders[arranged] if key not in left])) == {None}
    check_pages(zk, left)
    clean_table(table, 100)
    assert check_pages(zk, []) == ["-"]


def test_another_process_finds_its_way_after_splits_and_joins(zk: FakeZNodes) -> None:
    first = ZooKeeperMetaStore(zk, zk).create_scannable_table("t")
    second = ZooKeeperMetaStore(zk, zk).create_scannable_table("t")
    keys = names(4000)
    put_all(first, keys)
    for at in (0, 1999, 3999):
        assert second.remove_many([Remove(keys[at], ANY)]) == [None]
        put_all(second, [keys[at]])
        assert all_keys(second) == keys
    clean_table(second, 1000)
    put_all(first, keys[::3])
    assert all_keys(second) == keys[::3]
    check_pages(zk, keys[::3])


def test_a_cursor_is_not_lost_when_its_page_is_split_or_joined_under_it(table: MetastoreScannableTable) -> None:
    keys = names(3000)
    put_all(table, keys[::2])
    for order in Order:
        with table.open_cursor(order=order, fields=NONE) as cursor:
            seen = [item.key for item in cursor.read_entries(700)]
            clean = [key for key in keys[::2] if key in set(seen)]
            table.remove_many([Remove(key, ANY) for key in clean])
            put_all(table, keys[1::2])
            while cursor.has_more_entries():
                seen += [item.key for item in cursor.read_entries(300)]
        assert seen == sorted(set(seen), reverse=order is Order.DESC)
        assert set(seen) >= set(keys[::2])
        clean_table(table, 1000)
        put_all(table, keys[::2])


def test_ranges_over_many_pages_begin_and_end_where_they_say(zk: FakeZNodes, table: MetastoreScannableTable) -> None:
    keys = names(3000)
    put_all(table, keys)
    borders = [low[1:] for low in check_pages(zk, keys)]
    ends = sorted({border + suffix for border in borders[1:3] for suffix in ("", "0")} | {keys[7], keys[-7]})
    for low, high in itertools.combinations(ends, 2):
        for order in Order:
            first, last = (low, high) if order is Order.ASC else (high, low)
            with table.open_cursor(first, False, last, True, order=order, fields=NONE) as cursor:
                found = [item.key for item in rest_of(cursor)]
            wanted = [key for key in keys if (low <= key <= high) and key != first]
            assert found == (wanted if order is Order.ASC else wanted[::-1])


def test_a_key_that_comes_again_on_a_joined_page_is_not_read_twice(table: MetastoreScannableTable) -> None:
    keys = names(2000)
    put_all(table, keys)
    with table.open_cursor(order=Order.DESC, fields=NONE) as cursor:
        seen = [item.key for item in cursor.read_entries(1)]
        other = [key for key in keys if key > keys[1000]]
        while len(seen) < 10 or seen[-1] > keys[1100]:
            seen += [item.key for item in cursor.read_entries(1)]
        table.remove_many([Remove(key, ANY) for key in other])
        put_all(table, other[-3:])
        seen += [item.key for item in rest_of(cursor)]
    assert seen == sorted(set(seen), reverse=True)


def test_two_processes_that_add_to_one_page_lose_neither_key(zk: FakeZNodes) -> None:
    first = ZooKeeperMetaStore(zk, zk).create_scannable_table("t")
    second = ZooKeeperMetaStore(zk, zk).create_scannable_table("t")
    put_all(first, ["middle"])
    put_all(second, ["other"])

    def between() -> None:
        put_all(second, ["b"])
        second.remove("middle", ANY)

    zk.before = between
    put_all(first, ["a"])
    check_pages(zk, ["a", "b", "other"])


def test_a_key_that_comes_while_pages_are_joined_stays(zk: FakeZNodes) -> None:
    first = ZooKeeperMetaStore(zk, zk).create_scannable_table("t")
    second = ZooKeeperMetaStore(zk, zk).create_scannable_table("t")
    keys = names(1500)
    put_all(first, keys)
    lows = check_pages(zk, keys)
    left = [key for key in keys if key < lows[1][1:]]
    last = [key for key in keys if lows[1][1:] <= key < lows[2][1:]]
    first.remove_many([Remove(key, ANY) for key in last[1:]])

    def before_the_removal() -> None:
        zk.before = lambda: put_all(second, [left[0] + "-new"])  # before the next transaction, which joins

    zk.before = before_the_removal
    first.remove(last[0], ANY)
    expected = sorted([*(key for key in keys if key not in set(last)), left[0] + "-new"])
    check_pages(zk, expected)
    assert all_keys(first) == all_keys(second) == expected


def test_the_shortest_end_that_separates_two_pages_is_taken(zk: FakeZNodes, table: MetastoreScannableTable) -> None:
    put_all(table, [f"{at:03}{'x' * 400}" for at in range(500)])
    lows = zk.children(f"{ROOT}/order") or []
    assert len(lows) > 5
    assert max(map(len, lows)) == 4


def test_a_full_table_says_so_and_goes_on_with_what_it_has(
    zk: FakeZNodes, table: MetastoreScannableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LISTING_BYTES", 300)
    outcomes = table.put_many([Put(key, SMALL, NEW) for key in names(6000)])
    kept = [key for key, outcome in zip(names(6000), outcomes, strict=True) if isinstance(outcome, Version)]
    assert {type(outcome) for outcome in outcomes} == {Version, TableFull}
    assert check_pages(zk, kept)
    table.put(kept[0], SMALL, ANY)
    table.remove(kept[1], ANY)
    put_all(table, [kept[1]])


def test_a_damaged_page_stops_those_who_need_it_and_nobody_else(zk: FakeZNodes, table: MetastoreScannableTable) -> None:
    keys = names(2000)
    put_all(table, keys)
    lows = check_pages(zk, keys)
    zk.set(f"{ROOT}/order/{lows[1]}", b"?")
    outcomes = table.remove_many([Remove(key, ANY) for key in keys])
    spoilt = [key for key, outcome in zip(keys, outcomes, strict=True) if outcome is not None]
    assert {type(outcome) for outcome in outcomes if outcome is not None} == {CorruptRecord}
    assert spoilt == [key for key in keys if lows[1][1:] <= key < lows[2][1:]]
    assert table.get(spoilt[0]).value == SMALL, "entries are found without pages"
    with pytest.raises(CorruptRecord, match=f"{lows[1]} is no page"):
        all_keys(table)


# -- requests -------------------------------------------------------------------------------------------------------


def test_an_update_under_an_exact_version_reads_nothing_when_it_replaces_all(
    zk: FakeZNodes, table: MetastoreScannableTable
) -> None:
    keys = names(500)
    put_all(table, keys)
    zk.reads = 0
    zk.transactions.clear()
    outcomes = table.put_many([Put(key, SMALL, Version(0), whole=True) for key in keys])
    assert set(outcomes) == {Version(1)}
    assert zk.reads == 0
    assert [len(ops) for ops in zk.transactions] == [250, 250]


def test_a_lost_race_in_a_batch_costs_one_more_look_not_one_per_change(
    zk: FakeZNodes, store: ZooKeeperMetaStore
) -> None:
    table = store.create_table("t")
    keys = names(250)
    put_all(table, keys)
    ZooKeeperMetaStore(zk, zk).create_table("t").put_many([Put(key, SMALL, ANY) for key in keys[::2]])
    zk.reads = 0
    zk.transactions.clear()
    outcomes = table.put_many([Put(key, SMALL, Version(0), whole=True) for key in keys])
    assert [type(one) for one in outcomes] == [BadVersion, Version] * 125
    assert (zk.reads, len(zk.transactions)) == (1, 2)


def test_what_others_change_between_the_look_and_the_change_is_merged_not_lost(
    zk: FakeZNodes, store: ZooKeeperMetaStore
) -> None:
    table = store.create_table("t")
    put_all(table, ["k"])
    zk.before = lambda: table.put("k", Value({"b": b"2"}), ANY)
    assert table.put("k", Value({"c": b"3"}), ANY) == Version(2)
    assert dict(table.get("k").value) == {"a": b"1", "b": b"2", "c": b"3"}
    zk.before = lambda: table.remove("k", ANY)
    with pytest.raises(NoKey):
        table.put("k", Value({"c": b"3"}), ANY)


def test_a_small_table_makes_few_buckets_and_another_process_uses_them(
    zk: FakeZNodes, store: ZooKeeperMetaStore
) -> None:
    put_all(store.create_table("t"), names(20))
    buckets = zk.children(f"{ROOT}/keys") or []
    assert len(buckets) <= 20
    other = ZooKeeperMetaStore(zk, zk).create_table("t")
    assert [type(one) for one in other.put_many([Put(key, SMALL, ANY) for key in names(20)])] == [Version] * 20
    put_all(other, ["another"])
    assert len(zk.children(f"{ROOT}/keys") or []) <= 21


# -- the face for trio programs -------------------------------------------------------------------------------------


def test_trio_programs_have_the_same_calls() -> None:
    async def story() -> list[str]:
        store = AsyncMetaStore(MemoryMetaStore())
        table = await store.create_scannable_table("t")
        assert await table.put("a", SMALL, NEW) == Version(0)
        assert await table.put_many([Put("b", SMALL, NEW), Put("c", SMALL, NEW)]) == [Version(0)] * 2
        assert await table.get("a") == Versioned(SMALL, Version(0))
        with pytest.raises(NoKey):
            await table.remove("none", ANY)
        assert await table.remove_many([Remove("b", ANY)]) == [None]
        async with await table.open_cursor("z", False, None, True, order=Order.DESC) as cursor:
            assert await cursor.has_more_entries()
            items = await cursor.read_entries(10)
        plain = await store.create_table("p")
        await plain.put("x", SMALL, NEW)
        await plain.clean(10)
        async with await plain.open_cursor() as cursor:
            assert not await cursor.has_more_entries()
        await store.close()
        return [item.key for item in items]

    assert trio.run(story) == ["c", "a"]
