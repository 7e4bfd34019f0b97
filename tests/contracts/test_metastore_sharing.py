"""A MetaStore used by many at once, whatever keeps it: batches, races, watches, tables (seed 001)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from delivery.errors import BadVersion, Closed, HootError, InvalidRequest
from delivery.metastore.errors import IllegalOperation, KeyExists, NoKey
from delivery.metastore.tables.base import (
    MetaStore,
    MetastoreTable,
    Put,
    Remove,
    WatchEvent,
)
from delivery.metastore.tables.cursors import clean_table
from delivery.metastore.tables.values import (
    NONE,
    VALUE_BYTES_MAX,
    Value,
)
from delivery.metastore.tables.versions import Version, Versioned
from tests.metastore_tables import ANY, FULL, LETTERS, NEW, WRONG, StartStore, fill, keys, refused

# -- many at once ---------------------------------------------------------------------------------------------------


def test_many_puts_succeed_and_fail_each_by_itself(table: MetastoreTable) -> None:
    fill(table, ["a", "b", "c"])
    one = Value({"x": b"1"})
    outcomes = table.put_many(
        [
            Put("a", one, NEW), Put("new", one, NEW), Put("b", one, Version(0)), Put("b", one, Version(0)),
            Put("none", one, ANY), Put("c", one, WRONG), Put("c", one, ANY), Put("c", one, Version(1), whole=True),
            Put("none", one, NEW), Put("none", one, Version(0)),
        ]
    )  # fmt: skip
    kinds = [type(outcome) if isinstance(outcome, HootError) else outcome.number for outcome in outcomes]
    assert kinds == [KeyExists, 0, 1, BadVersion, NoKey, BadVersion, 1, 2, 0, 1]
    assert table.get("c") == Versioned(one, Version(2))
    assert table.get("b").value == Value({"name": b"b", "counter": b"1", "x": b"1"})
    gone = table.remove_many([Remove("a", WRONG), Remove("b", Version(1)), Remove("b", ANY), Remove("c", ANY)])
    assert [one and type(one) for one in gone] == [BadVersion, None, NoKey, None]
    assert sorted(keys(table.open_cursor())) == ["a", "new", "none"]
    assert table.put_many([]) == []
    assert table.remove_many([]) == []


def test_many_that_all_fail_are_answered_too(table: MetastoreTable) -> None:
    names = [f"k{at:03}" for at in range(600)]
    fill(table, names)
    outcomes = table.put_many([Put(name, FULL, WRONG, whole=True) for name in names])
    assert {type(outcome) for outcome in outcomes} == {BadVersion}
    assert {type(outcome) for outcome in table.put_many([Put(name, FULL, NEW) for name in names])} == {KeyExists}


def test_large_values_are_put_many_at_a_time_too(table: MetastoreTable) -> None:
    big = Value({"a": b"x" * (VALUE_BYTES_MAX - 1)})
    assert table.put_many([Put(f"k{at}", big, NEW) for at in range(3)]) == [Version(0)] * 3
    assert table.put_many([Put(f"k{at}", big, ANY) for at in range(3)]) == [Version(1)] * 3


def test_of_many_who_put_at_once_one_succeeds_and_any_loses_nothing(start_metastore: StartStore) -> None:
    stores = [start_metastore() for _ in range(4)]
    ready = threading.Barrier(12)

    def run(number: int) -> list[HootError | Version]:
        table = stores[number % 4].create_scannable_table("t")
        ready.wait(20)
        first = table.put_many([Put("one", Value({"w": str(number).encode()}), NEW)])[0]
        table.put(f"own-{number:02}", FULL, NEW)
        for at in range(5):
            table.put("one", Value({f"f{number}-{at}": b"1"}), ANY)
        return [first]

    with ThreadPoolExecutor(12) as pool:
        outcomes = [outcome for part in pool.map(run, range(12)) for outcome in part]
    winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Version)]
    assert len(winners) == 1
    assert {type(outcome) for outcome in outcomes} == {Version, KeyExists}
    table = start_metastore().create_scannable_table("t")
    entry = table.get("one")
    assert entry.version == Version(60)
    assert entry.value["w"] == str(winners[0]).encode()
    assert len(entry.value) == 61, "no merge is lost"
    assert keys(table.open_cursor("own-", True)) == [f"own-{number:02}" for number in range(12)]


def test_of_many_who_compare_and_set_at_once_each_version_is_won_once(start_metastore: StartStore) -> None:
    start_metastore().create_table("t").put("one", Value({"n": b"0"}), NEW)
    ready = threading.Barrier(4)

    def count(_: int) -> int:
        table = start_metastore().create_table("t")
        ready.wait(20)
        won = 0
        while won < 10:
            entry = table.get("one")
            number = int(entry.value["n"] or b"")
            try:
                table.put("one", Value({"n": str(number + 1).encode()}), entry.version)
            except BadVersion:
                continue
            won += 1
        return won

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(count, range(4))) == 40
    assert start_metastore().create_table("t").get("one") == Versioned(Value({"n": b"40"}), Version(40))


# -- watches --------------------------------------------------------------------------------------------------------


class Told:
    """What a watcher was told."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[WatchEvent] = queue.SimpleQueue()

    def __call__(self, event: WatchEvent) -> None:
        self.events.put(event)

    def next(self) -> WatchEvent:
        return self.events.get(timeout=10)


def test_many_keys_are_watched_together_each_for_itself(table: MetastoreTable) -> None:
    told: queue.SimpleQueue[tuple[str, WatchEvent]] = queue.SimpleQueue()
    table.put("a", FULL, NEW)
    table.put("b", FULL, NEW)
    found = table.get_many(["a", "b", "c"], NONE, lambda key, event: told.put((key, event)))
    assert [one is not None for one in found] == [True, True, False]
    for change, event in (
        (lambda: table.put("c", FULL, NEW), ("c", WatchEvent.CREATED)),
        (lambda: table.put("a", FULL, ANY), ("a", WatchEvent.CHANGED)),
        (lambda: table.remove("b", ANY), ("b", WatchEvent.DELETED)),
    ):
        change()
        assert told.get(timeout=10) == event
    table.put("a", FULL, ANY)
    table.put("b", FULL, NEW)
    assert told.empty()


def test_a_watch_tells_once_of_the_next_change(table: MetastoreTable) -> None:
    told, last = Told(), Told()
    assert refused(table.get, "k", watch=told) is NoKey
    table.put("k", FULL, NEW)
    assert told.next() is WatchEvent.CREATED
    table.get("k", NONE, watch=told)
    table.put("k", FULL, ANY)
    assert told.next() is WatchEvent.CHANGED
    table.put("k", FULL, ANY)
    table.get("k", {"name"}, watch=told)
    table.get("k", watch=last)
    table.remove("k", ANY)
    assert told.next() is WatchEvent.DELETED
    assert last.next() is WatchEvent.DELETED, "several can watch a key"
    assert told.events.empty()
    assert last.events.empty()


def test_a_watch_sees_what_another_process_does_and_only_to_its_key(start_metastore: StartStore) -> None:
    here, there = start_metastore().create_table("t"), start_metastore().create_table("t")
    fill(there, ["k", "other"])
    told = Told()
    here.get("k", watch=told)
    there.put("other", FULL, ANY)
    there.put("k", FULL, ANY)
    assert told.next() is WatchEvent.CHANGED
    assert told.events.empty()


def test_a_watcher_that_raises_hurts_nobody(table: MetastoreTable) -> None:
    def broken(event: WatchEvent) -> None:
        raise ValueError(event)

    told = Told()
    fill(table, ["k"])
    table.get("k", watch=broken)
    table.get("k", watch=told)
    assert table.put("k", FULL, ANY) == Version(1)
    assert told.next() is WatchEvent.CHANGED


def test_a_closed_store_calls_no_watcher_and_takes_no_calls(start_metastore: StartStore) -> None:
    store, other = start_metastore(), start_metastore()
    table = store.create_table("t")
    fill(table, ["k"])
    mine, theirs = Told(), Told()
    table.get("k", watch=mine)
    there = other.create_table("t")
    there.get("k", watch=theirs)
    store.close()
    store.close()
    there.put("k", FULL, ANY)
    assert theirs.next() is WatchEvent.CHANGED
    assert mine.events.empty()
    calls: list[Callable[[], object]] = [
        lambda: table.get("k"), lambda: table.put("k", FULL, ANY), lambda: table.remove("k", ANY),
        table.open_cursor, lambda: store.create_table("t"), lambda: store.drop_table("t"),
    ]  # fmt: skip
    assert [refused(call) for call in calls] == [Closed] * 6


# -- tables ---------------------------------------------------------------------------------------------------------


def test_tables_are_apart_and_a_second_store_finds_them(start_metastore: StartStore) -> None:
    store, other = start_metastore(), start_metastore()
    fill(store.create_table("a"), ["k"])
    fill(store.create_scannable_table("b"), ["l"])
    assert keys(other.create_table("a").open_cursor()) == ["k"]
    assert keys(other.create_scannable_table("b").open_cursor()) == ["l"]
    assert keys(store.create_table("c").open_cursor()) == []
    assert store.name
    assert store.version == 1


def test_a_table_keeps_its_kind(start_metastore: StartStore) -> None:
    store, other = start_metastore(), start_metastore()
    store.create_table("plain")
    fill(store.create_scannable_table("ordered"), LETTERS)
    for one in (store, other):
        assert refused(one.create_scannable_table, "plain") is IllegalOperation
        fill(one.create_table("ordered"), [f"added-{id(one)}"])
    assert len(keys(other.create_scannable_table("ordered").open_cursor())) == len(LETTERS) + 2, "its order is kept up"


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 250, None])
def test_a_table_has_a_plain_name(metastore: MetaStore, name: Any) -> None:
    assert refused(metastore.create_table, name) is InvalidRequest
    assert refused(metastore.create_scannable_table, name) is InvalidRequest
    assert refused(metastore.drop_table, name) is InvalidRequest


def test_many_make_a_table_at_once(start_metastore: StartStore) -> None:
    stores = [start_metastore() for _ in range(3)]
    ready = threading.Barrier(12)

    def run(number: int) -> None:
        ready.wait(20)
        stores[number % 3].create_scannable_table("t").put(f"k{number:02}", FULL, NEW)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(run, range(12)))
    assert keys(stores[0].create_scannable_table("t").open_cursor()) == [f"k{number:02}" for number in range(12)]


def test_cleaning_a_table_leaves_it_empty_and_usable(table: MetastoreTable) -> None:
    assert refused(clean_table, table, 0) is IllegalOperation
    clean_table(table, 10)
    fill(table, [f"k{at:04}" for at in range(1500)])
    clean_table(table, 99)
    assert keys(table.open_cursor()) == []
    fill(table, LETTERS)
    assert sorted(keys(table.open_cursor())) == list(LETTERS)


def test_a_dropped_table_is_gone_and_can_be_made_anew_as_another_kind(start_metastore: StartStore) -> None:
    store = start_metastore()
    fill(store.create_table("t"), [f"k{at:04}" for at in range(700)])
    store.drop_table("t")
    store.drop_table("t")
    table = store.create_scannable_table("t")
    assert keys(table.open_cursor()) == []
    fill(table, LETTERS)
    assert keys(start_metastore().create_scannable_table("t").open_cursor()) == list(LETTERS)
