"""The demo's judgement: a run without fault passes, and each thing that can go wrong is found and named."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from delivery.demo import records
from delivery.demo.flights import Flight, Tally
from delivery.demo.records import Received, RecordFile
from delivery.demo.report import Delivered, Fault, Limits, Report, Run, evaluate, tally_of
from delivery.demo.show import show
from delivery.demo.steps import Step

COUNT = 40
PARTITIONS = 2
MS = 1_000_000
KILL = Fault("the subscriber", at_ns=2_005 * MS, back_ns=2_008 * MS)
"""Between the callbacks number 20 and 21 of a plain run: they come 100 ms apart, from 0 ms on."""


def flight(number: int) -> Flight:
    delay = None if number % 10 == 9 else number - 5
    return Flight(
        ("AA", "UA")[number % PARTITIONS], ("JFK", "LGA")[number % 4 // 2], "2013-01-01T10:15:00Z", delay, b"{}"
    )


FLIGHTS = [flight(number) for number in range(COUNT)]
STORED = [(number % PARTITIONS, 1_000 + number) for number in range(COUNT)]
STEP = Step(name="archive", what="archived", expected=COUNT, found=COUNT, seconds=1.0)
JFK = [number for number in range(COUNT) if FLIGHTS[number].origin == "JFK"]


def called(number: int, at_ms: float | None = None) -> Received:
    """The callback for a flight, 100 ms after the one before it and 5 ms after its put."""
    at = int((number * 100 if at_ms is None else at_ms) * MS)
    partition, stored = STORED[number]
    return Received(stored, at, 5_000, 200, partition, FLIGHTS[number].delay, FLIGHTS[number].carrier)


def run(callbacks: list[Received] | None = None, **changed: object) -> Run:
    """A run in which everything is as it should be, but for the callbacks of `all` and what else is changed."""
    plain = [called(number) for number in range(COUNT)]
    fields = {
        "flights": FLIGHTS, "stored": STORED, "covered": {"all": range(COUNT), "jfk": JFK},
        "records": {"all": plain if callbacks is None else callbacks, "jfk": [called(number) for number in JFK]},
        "faults": [KILL], "limits": Limits(messages=5, bytes=10_000), "spark": tally_of(FLIGHTS),
        "steps": [STEP],
    }  # fmt: skip
    return Run(**{**fields, **changed})  # type: ignore[arg-type]


def judged(callbacks: list[Received]) -> tuple[Delivered, Report]:
    report = evaluate(run(callbacks), "all")
    return report.subscriptions[0], report


def plain() -> list[Received]:
    return [called(number) for number in range(COUNT)]


def again(numbers: range, from_ms: float) -> list[Received]:
    return [called(number, from_ms + place) for place, number in enumerate(numbers)]


def test_a_run_without_loss_has_no_differences() -> None:
    report = evaluate(run(), "all")
    assert report.differences == []
    assert [(row.subscription, row.delivered, row.missing) for row in report.subscriptions] == [
        ("all", COUNT, 0), ("jfk", len(JFK), 0),
    ]  # fmt: skip
    assert [one.carrier for one in report.carriers] == ["AA", "UA"]
    assert all(one.agrees for one in report.carriers)


def test_a_lost_message_is_missing_and_makes_the_counts_differ() -> None:
    callbacks = plain()
    del callbacks[7]
    row, report = judged(callbacks)
    assert (row.missing, row.distinct, row.out_of_order, row.duplicates) == (1, COUNT - 1, 0, 0)
    assert "subscription all: not delivered: 1" in report.differences
    assert any(difference.startswith("carrier UA: file 20 flights") for difference in report.differences)


def test_a_step_afterwards_that_is_not_as_it_should_be_is_a_difference() -> None:
    short = msgspec.structs.replace(STEP, found=COUNT - 1)
    report = evaluate(run(steps=[STEP, short]), "all")
    assert report.differences == ["archive, archived: 39 of 40"]
    assert report.steps == [STEP, short]


def test_nothing_delivered_at_all_is_a_difference_and_has_no_times() -> None:
    row, report = judged([])
    assert (row.missing, row.messages_per_second, row.p50_ms) == (COUNT, None, None)
    assert report.differences


def test_a_message_of_another_subscription_is_unexpected() -> None:
    foreign = next(number for number in range(COUNT) if number not in JFK)
    both = {"all": plain(), "jfk": [*(called(number) for number in JFK), called(foreign, 5_000)]}
    report = evaluate(run(records=both), "all")
    assert report.subscriptions[1].unexpected == 1
    assert "subscription jfk: delivered without belonging to it: 1" in report.differences


def test_a_message_stored_twice_under_two_ids_is_unexpected() -> None:
    double = called(7, 5_000)._replace(number=2_000)
    row, report = judged([*plain(), double])
    assert (row.unexpected, row.duplicates) == (1, 0)
    assert report.differences


def test_two_messages_of_a_partition_that_changed_places_are_out_of_order() -> None:
    callbacks = plain()
    callbacks[6], callbacks[8] = callbacks[8], callbacks[6]
    row, report = judged(callbacks)
    assert (row.out_of_order, row.missing, row.duplicates) == (1, 0, 0)
    assert report.differences == ["subscription all: delivered out of order: 1"]


def test_partitions_may_overtake_each_other() -> None:
    callbacks = plain()
    callbacks[6], callbacks[7] = callbacks[7], callbacks[6]
    row, report = judged(callbacks)
    assert row.out_of_order == 0
    assert report.differences == []


def test_what_comes_again_after_a_fault_within_the_window_is_explained() -> None:
    callbacks = [*plain()[:21], *again(range(11, 21), 2_010), *plain()[21:]]
    row, report = judged(callbacks)
    assert (row.duplicates, row.unexplained, row.out_of_order, row.distinct) == (10, 0, 0, COUNT)
    assert report.differences == []


def test_more_duplicates_than_the_window_holds_are_a_difference() -> None:
    callbacks = [*plain()[:21], *again(range(7, 21), 2_010), *plain()[21:]]
    row, report = judged(callbacks)
    assert (row.duplicates, row.unexplained) == (14, 4)
    assert report.differences == ["subscription all: delivered again without a fault: 4"]


def test_duplicates_of_more_bytes_than_the_window_holds_are_a_difference() -> None:
    callbacks = [*plain()[:21], *(one._replace(size=4_000) for one in again(range(15, 21), 2_010)), *plain()[21:]]
    row, _ = judged(callbacks)
    assert (row.duplicates, row.unexplained) == (6, 2)


def test_a_duplicate_before_any_fault_is_a_difference() -> None:
    row, report = judged([*plain()[:10], called(9, 950), *plain()[10:]])
    assert (row.duplicates, row.unexplained) == (1, 1)
    assert report.differences


def test_a_duplicate_of_what_came_only_after_the_fault_is_a_difference() -> None:
    row, _ = judged([*plain()[:31], called(30, 3_050), *plain()[31:]])
    assert (row.duplicates, row.unexplained) == (1, 1)


def test_the_same_message_twice_again_after_one_fault_is_a_difference() -> None:
    row, _ = judged([*plain()[:21], called(20, 2_010), called(20, 2_011), *plain()[21:]])
    assert (row.duplicates, row.unexplained) == (2, 1)


def test_each_fault_has_a_window_of_its_own() -> None:
    second = Fault("the host", at_ns=3_005 * MS, back_ns=3_008 * MS)
    callbacks = [
        *plain()[:21],
        *again(range(11, 21), 2_010),
        *plain()[21:31],
        *again(range(21, 31), 3_010),
        *plain()[31:],
    ]
    row = evaluate(run(callbacks, faults=[KILL, second]), "all").subscriptions[0]
    assert (row.duplicates, row.unexplained) == (20, 0)


@pytest.mark.parametrize("field", ["flights", "departed", "delay_sum"])
def test_another_count_or_mean_in_spark_is_a_difference(field: str) -> None:
    spark = tally_of(FLIGHTS)
    spark["AA"] = msgspec.structs.replace(spark["AA"], **{field: getattr(spark["AA"], field) + 1})
    report = evaluate(run(spark=spark), "all")
    assert [one.agrees for one in report.carriers] == [False, True]
    assert len(report.differences) == 1
    assert report.differences[0].startswith("carrier AA: ")


def test_a_carrier_that_only_spark_knows_is_a_difference() -> None:
    report = evaluate(run(spark={**tally_of(FLIGHTS), "": Tally(1, 1, 1)}), "all")
    assert [one.carrier for one in report.carriers if not one.agrees] == [""]


def test_a_callback_that_read_another_delay_is_a_difference() -> None:
    callbacks = plain()
    callbacks[4] = callbacks[4]._replace(delay=99)
    _, report = judged(callbacks)
    assert len(report.differences) == 1
    assert report.differences[0].startswith("carrier AA: ")


def test_what_a_filtered_subscription_read_is_compared_with_the_file_too() -> None:
    wrong = {"all": plain(), "jfk": [called(number)._replace(delay=1) for number in JFK]}
    assert evaluate(run(records=wrong), "all").differences == [
        "subscription jfk: what its callbacks read differs from the file"
    ]


def test_ids_that_do_not_rise_in_the_order_of_publishing_are_a_difference() -> None:
    stored = [*STORED]
    stored[2], stored[4] = stored[4], stored[2]
    assert "publisher: not stored in the order of the puts: 1" in evaluate(run(stored=stored), "all").differences


def test_times_are_given_for_the_whole_run_and_for_the_part_before_the_first_fault() -> None:
    callbacks = [one._replace(waited_us=2_000 if n < 21 else 900_000) for n, one in enumerate(plain())]
    row, _ = judged(callbacks)
    assert (row.p50_ms, row.p99_ms, row.calm_p50_ms, row.calm_p99_ms) == (2.0, 900.0, 2.0, 2.0)
    assert row.messages_per_second == pytest.approx(COUNT / 3.9, rel=0.01)


def test_the_tables_show_every_figure_and_are_not_cut_off_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    show(evaluate(run([*plain()[:21], *again(range(11, 21), 2_010), *plain()[21:]]), "all"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["all", "50", "40", "10", "0", "0", "13", "5.00", "5.00", "5.00", "5.00"] in lines
    assert ["AA", "20", "20", "20", "14.00", "14.00", "14.00", "yes"] in lines
    assert any(line[:4] == ["All", "40", "flights", "were"] for line in lines)


def test_what_differs_is_shown_below_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    show(evaluate(run(plain()[1:]), "all"))
    shown = capsys.readouterr().out
    assert "2 differences:" in shown
    assert "subscription all: not delivered: 1" in shown
    assert "NO" in shown


def test_callbacks_are_read_back_as_they_were_noted(tmp_path: Path) -> None:
    path = tmp_path / "all.callbacks"
    noted = [called(4), called(9), called(5)._replace(waited_us=2**40, delay=-61)]
    assert records.count(path) == 0
    for one in noted:
        file = RecordFile(path)  # each by another process, as it were
        file.append(one)
        file.close()
    assert records.count(path) == len(noted)
    assert list(records.read(path)) == [*noted[:2], noted[2]._replace(waited_us=2**32 - 1)]


def test_no_callback_is_half_on_a_page() -> None:
    """Or a kill in the middle of the write could leave half of it."""
    assert os.sysconf("SC_PAGE_SIZE") % records.RECORD_BYTES == 0
