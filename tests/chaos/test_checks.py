"""The checker finds what it is for: a story in which all is well passes, and each thing that can go wrong is seen."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.chaos.checks import CHECKS, GRACE_SECONDS
from tests.chaos.cluster import Listens
from tests.chaos.figures import figures
from tests.chaos.report import report
from tests.chaos.story import Fault, Put, Row, Seen, Story

WINDOW = 4
MESSAGES = 12
FAULT_AT = 100.0


def story() -> Story:
    """Two partitions, two subscriptions, a fault at 100 s after which partition 0 goes back by two messages."""
    made = Story(subscriptions=(Listens("whole"), Listens("filtered", topics=("a",))), window=WINDOW)
    for number in range(1, MESSAGES + 1):
        body, topic, partition, at = f"p.1.{number}", "a" if number % 3 else "-", number % 2, float(number)
        made.puts[body] = Put(body, "p.1", number, topic, number, at, "stored", (partition, number * 10))
        made.scan.append(Row(partition, number * 10, topic, body, number))
    made.puts["p.1.99"] = Put("p.1.99", "p.1", 99, "-", 99, 20.0, "refused", code="throttled")
    made.puts["p.1.98"] = Put("p.1.98", "p.1", 98, "-", 98, 20.0, "unknown")
    made.tail = list(made.scan)
    made.command_scan = list(made.scan)
    for one in made.subscriptions:
        wanted = [row for row in made.scan if one.wants(row.partition, row.topic)]
        made.calls[one.name] = [called(row, row.id / 10 + 0.5) for row in wanted]
        for row in wanted:
            made.seen.append(Seen(row.id / 10 + 0.6, one.name, row.partition, row.id, 1))
    again = [row for row in made.scan if row.partition == 0][-2:]
    made.calls["whole"] += [called(row, FAULT_AT + 1) for row in again]
    made.faults = [Fault("host-kill", "host-1", FAULT_AT, frozenset({0}), FAULT_AT + 2)]
    made.seen += [Seen(50.0, "", 0, 0, 1), Seen(FAULT_AT + 0.5, "", 0, 0, 2)]
    return made


def called(row: Row, at: float) -> Row:
    return msgspec.structs.replace(row, at=at)


def failing(told: Story) -> set[str]:
    return {check.__name__ for _, _, check in CHECKS if check(told)}


def test_a_story_in_which_all_is_well_passes_and_is_counted() -> None:
    told = story()
    assert failing(told) == set()
    text, held = report(told, 4.0)
    assert held
    assert "FAIL" not in text
    counted = figures(told)
    assert (counted.duplicates, counted.deepest, counted.outcomes["stored"]) == (2, 2, MESSAGES)


def test_a_failover_lasts_until_the_first_callback_of_what_was_put_after_the_fault() -> None:
    told = story()
    told.puts["p.1.13"] = Put("p.1.13", "p.1", 13, "-", 13, FAULT_AT + 1, "stored", (0, 2000))
    told.calls["whole"].append(Row(0, 2000, "-", "p.1.13", 13, FAULT_AT + 3))
    [failover] = figures(told).failovers
    assert (failover.partition, failover.seconds, failover.owned) == (0, 3.0, 0.5)


def lost_for_one_subscription(told: Story) -> None:
    told.calls["filtered"] = [row for row in told.calls["filtered"] if row.body != "p.1.5"]


def acknowledged_and_gone(told: Story) -> None:
    told.scan = [row for row in told.scan if row.body != "p.1.5"]


def stored_twice(told: Story) -> None:
    told.scan.append(msgspec.structs.replace(told.scan[4], id=5000))


def another_body_under_the_id(told: Story) -> None:
    told.puts["p.1.4"].place, told.puts["p.1.2"].place = told.puts["p.1.2"].place, told.puts["p.1.4"].place


def bytes_changed_on_the_way(told: Story) -> None:
    told.calls["whole"][3] = msgspec.structs.replace(told.calls["whole"][3], checksum=1234)


def delivered_unasked(told: Story) -> None:
    row = next(row for row in told.scan if row.topic == "-")
    told.calls["filtered"].append(called(row, 60.0))


def refused_and_there(told: Story) -> None:
    told.scan.append(Row(0, 9000, "-", "p.1.99", 99))


def never_put(told: Story) -> None:
    told.calls["whole"].append(Row(0, 9000, "-", "nobody.1.1", 1, 60.0))


def refused_for_good(told: Story) -> None:
    told.puts["p.1.99"].outcome = "refused-for-good"


def ids_go_back(told: Story) -> None:
    told.scan[2], told.scan[4] = told.scan[4], told.scan[2]


def a_producer_overtaken_by_itself(told: Story) -> None:
    told.puts["p.1.5"].number, told.puts["p.1.3"].number = 3, 5


def a_callback_skipped(told: Story) -> None:
    rows = told.calls["whole"]
    rows.append(rows.pop(2))


def the_first_callback_late(told: Story) -> None:
    rows = told.calls["whole"]
    rows.append(called(rows.pop(0), FAULT_AT + 1))


def twice_without_a_fault(told: Story) -> None:
    told.calls["whole"].append(called(told.calls["whole"][-1], FAULT_AT + 2 + GRACE_SECONDS + 1))


def back_by_more_than_the_window(told: Story) -> None:
    told.calls["whole"] += [called(row, FAULT_AT + 1) for row in told.scan if row.partition == 0]


def checkpoint_back(told: Story) -> None:
    told.seen.append(Seen(200.0, "whole", 0, 10, 1))


def epoch_back(told: Story) -> None:
    told.seen.append(Seen(200.0, "", 0, 0, 1))


def checkpoint_before_the_callback(told: Story) -> None:
    told.seen.insert(0, Seen(1.0, "whole", 0, 40, 1))


def checkpoint_left_behind(told: Story) -> None:
    told.seen = [seen for seen in told.seen if (seen.subscription, seen.id) != ("whole", MESSAGES * 10)]


def the_follower_missed_one(told: Story) -> None:
    del told.tail[3]


def the_follower_got_one_late(told: Story) -> None:
    told.tail.append(told.tail.pop(3))


def the_command_prints_less(told: Story) -> None:
    del told.command_scan[-1]


def nobody_owns_a_partition(told: Story) -> None:
    told.problems.append("partition 1 has no living owner")


def nothing_stored(told: Story) -> None:
    told.scan.clear()


SPOILED: list[tuple[Callable[[Story], None], str]] = [
    (lost_for_one_subscription, "delivered"),
    (acknowledged_and_gone, "stored_once"),
    (stored_twice, "stored_once"),
    (another_body_under_the_id, "stored_once"),
    (bytes_changed_on_the_way, "contents_agree"),
    (delivered_unasked, "contents_agree"),
    (refused_and_there, "refused_never_seen"),
    (never_put, "refused_never_seen"),
    (refused_for_good, "not_refused_for_good"),
    (ids_go_back, "ids_rise"),
    (a_producer_overtaken_by_itself, "producers_order"),
    (a_callback_skipped, "nothing_skipped"),
    (the_first_callback_late, "nothing_skipped"),
    (twice_without_a_fault, "rewinds_after_faults"),
    (back_by_more_than_the_window, "rewinds_within_window"),
    (checkpoint_back, "never_back"),
    (epoch_back, "never_back"),
    (checkpoint_before_the_callback, "checkpoints_behind_callbacks"),
    (checkpoint_left_behind, "checkpoints_at_end"),
    (the_follower_missed_one, "tail_has_no_hole"),
    (the_follower_got_one_late, "tail_has_no_hole"),
    (the_command_prints_less, "scans_agree"),
    (nobody_owns_a_partition, "run_itself"),
    (nothing_stored, "run_itself"),
]


@pytest.mark.parametrize(("spoil", "found"), SPOILED, ids=[spoil.__name__ for spoil, _ in SPOILED])
def test_the_checker_finds(spoil: Callable[[Story], None], found: str) -> None:
    told = story()
    spoil(told)
    assert found in failing(told)
    text, held = report(told, 4.0)
    assert not held
    assert "FAIL" in text


def test_every_check_was_seen_to_fail() -> None:
    assert {found for _, found in SPOILED} == {check.__name__ for _, _, check in CHECKS}
