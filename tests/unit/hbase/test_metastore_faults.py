"""The MetaStore in HBase when answers get lost, requests come late, or HBase is away or refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delivery.errors import (
    HootError,
    InvalidRequest,
    MetadataUnavailable,
    StorageUnavailable,
)
from delivery.hbase.errors import Denied
from delivery.metastore.errors import ValueTooLarge
from delivery.metastore.ops import InDoubt
from delivery.metastore.tables import cells
from delivery.metastore.tables.base import MetastoreScannableTable, Put
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from tests.hbase_tables import Data, FakeTables
from tests.metastore_hbase import Faulty, opened
from tests.metastore_tables import ANY, FULL, NEW, fill, found, items, keys, refused

ONE, TWO = Value({"a": b"1"}), Value({"a": b"2"})


# -- answers that get lost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [["done"], ["lost"], ["lost", "done"], ["lost", "lost", "lost"]])
def test_a_change_without_an_answer_is_looked_for_and_done_once(
    hbase: Faulty, table: MetastoreScannableTable, plan: list[str]
) -> None:
    changes: list[tuple[Callable[[], object], Versioned[Value] | None]] = [
        (lambda: table.put("k", ONE, NEW), Versioned(ONE, Version(0))),
        (lambda: table.put("k", TWO, Version(0)), Versioned(TWO, Version(1))),
        (lambda: table.put("k", ONE, ANY), Versioned(ONE, Version(2))),
        (lambda: table.remove("k", Version(2)), None),
    ]
    for change, there in changes:
        hbase.plan = list(plan)
        change()
        assert found(table, "k") == there
        assert not hbase.plan


def test_a_change_that_was_overtaken_while_its_answer_was_lost_is_in_doubt_and_never_arrives(
    hbase: Faulty, data: Data, table: MetastoreScannableTable
) -> None:
    other = opened(FakeTables(data)).create_scannable_table("t")
    for version in (ANY, Version(0)):
        table.put("k", ONE, NEW)
        hbase.plan = ["late"]
        hbase.before_look = lambda: setattr(hbase, "before_look", lambda: other.put("k", Value({"b": b"1"}), ANY))
        assert refused(table.put, "k", TWO, version) is InDoubt
        hbase.arrive()
        assert table.get("k") == Versioned(Value({"a": b"1", "b": b"1"}), Version(1)), "what was late is refused"
        table.remove("k", ANY)


def test_a_late_request_and_its_repetition_are_done_once(hbase: Faulty, table: MetastoreScannableTable) -> None:
    table.put("k", ONE, NEW)
    hbase.plan = ["late", "late"]
    looks = iter(range(9))

    def arriving() -> None:
        hbase.before_look = arriving
        if next(looks) == 2:
            hbase.arrive()

    hbase.before_look = arriving
    assert table.put("k", TWO, ANY) == Version(1)
    assert table.get("k") == Versioned(TWO, Version(1))


def test_the_same_content_by_another_is_not_taken_for_ones_own(
    hbase: Faulty, data: Data, table: MetastoreScannableTable
) -> None:
    other = opened(FakeTables(data)).create_scannable_table("t")
    hbase.plan = ["lost"]
    hbase.before_look = lambda: other.put("k", ONE, NEW)
    assert refused(table.put, "k", ONE, NEW) is InDoubt
    hbase.plan = ["late"]

    def again() -> None:
        other.remove("k", ANY)
        other.put("k", ONE, NEW)

    hbase.before_look = lambda: setattr(hbase, "before_look", again)
    assert refused(table.put, "k", TWO, Version(0)) is InDoubt
    hbase.arrive()
    assert table.get("k") == Versioned(ONE, Version(0)), "what was meant for the entry of before does not hit this one"


def test_a_repetition_that_came_after_the_late_request_is_in_doubt_when_hbase_goes(
    hbase: Faulty, table: MetastoreScannableTable
) -> None:
    table.put("k", ONE, NEW)
    hbase.plan = ["late"]

    def gone() -> None:
        hbase.failing = StorageUnavailable("gone")

    def second() -> None:
        hbase.arrive()
        hbase.before_look = gone

    hbase.before_look = lambda: setattr(hbase, "before_look", lambda: setattr(hbase, "before_ask", second))
    assert refused(table.put, "k", TWO, Version(0)) is InDoubt


def test_after_many_lost_answers_the_outcome_is_in_doubt(hbase: Faulty, table: MetastoreScannableTable) -> None:
    hbase.plan = ["lost"] * 9
    assert refused(table.put, "k", ONE, NEW) is InDoubt
    assert len(hbase.plan) == 9 - 1 - cells.DOUBTS_MAX


def test_two_who_remove_an_entry_are_told_apart_when_an_answer_is_lost(
    hbase: Faulty, data: Data, table: MetastoreScannableTable
) -> None:
    other = opened(FakeTables(data)).create_scannable_table("t")
    table.put("k", ONE, NEW)
    hbase.plan = ["lost"]
    hbase.before_look = lambda: setattr(hbase, "before_look", lambda: other.remove("k", ANY))
    assert refused(table.remove, "k", Version(0)) is InDoubt


# -- HBase away, or refusing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StorageUnavailable("gone"), Denied("HBase denies permission")])
def test_without_hbase_every_call_says_so(hbase: Faulty, table: MetastoreScannableTable, error: HootError) -> None:
    fill(table, ["k"])
    hbase.failing = error
    calls: list[Callable[[], Any]] = [
        lambda: table.get("k"), lambda: table.put("k", ONE, ANY), lambda: table.put("l", ONE, NEW),
        lambda: table.remove("k", ANY), lambda: keys(table.open_cursor()), lambda: opened(hbase),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(MetadataUnavailable, match=error.message) as told:
            call()
        assert not isinstance(told.value, InDoubt), "nothing was sent"


def test_after_a_failure_no_further_change_is_tried(hbase: Faulty, table: MetastoreScannableTable) -> None:
    hbase.failing, hbase.asked = StorageUnavailable("gone"), 0
    outcomes = table.put_many([Put(f"k{at:03}", ONE, NEW) for at in range(600)])
    assert {type(one) for one in outcomes} == {MetadataUnavailable}
    assert hbase.asked <= 2 * 8, "each of them would wait for the deadline"


def test_what_was_sent_without_an_answer_stays_in_doubt_when_hbase_goes(
    hbase: Faulty, table: MetastoreScannableTable
) -> None:
    table.put("k", ONE, NEW)
    hbase.plan = ["done"]

    def gone() -> None:
        hbase.failing = StorageUnavailable("gone")

    hbase.before_look = lambda: setattr(hbase, "before_look", gone)
    assert refused(table.put, "k", TWO, ANY) is InDoubt


def test_a_cursor_goes_on_where_it_was(hbase: Faulty, table: MetastoreScannableTable) -> None:
    names = [f"k{at:04}" for at in range(300)]
    fill(table, names)
    cursor = table.open_cursor()
    seen = [item.key for item in cursor.read_entries(100)]
    hbase.failing = StorageUnavailable("gone")
    assert refused(cursor.read_entries, 100) is MetadataUnavailable
    assert refused(cursor.has_more_entries) is MetadataUnavailable
    hbase.failing = None
    assert seen + [item.key for item in items(cursor)] == names


def test_a_value_that_hbase_does_not_take_is_too_large(
    hbase: Faulty, table: MetastoreScannableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise InvalidRequest("HBase: KeyValue size too large")

    monkeypatch.setattr(hbase, "check_and_put", refuse)
    assert refused(table.put, "k", FULL, NEW) is ValueTooLarge
    assert found(table, "k") is None
