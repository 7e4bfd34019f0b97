"""The checker finds what it is for: a story in which all is well passes, and each thing that can go wrong is seen."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest

from tests.chaos.checks import CHECKS
from tests.chaos.figures import figures
from tests.chaos.report import report
from tests.chaos.stories import FAULT_AT, MESSAGES, WINDOW, a_fault_of_the_filtered_alone, called, story
from tests.chaos.story import GRACE_SECONDS, Attempt, Fault, Gauge, Move, Put, Row, Seen, Story, Written


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
    assert (failover.kind, failover.duplicates) == ("kill", 2)
    text, _ = report(told, 4.0)
    assert re.search(r"(?m)^  kill +1 partitions +median +3.00 s +p99 +3.00 s .*duplicates: median 2, max 2", text)
    assert re.search(r"(?m)^  leader kill +none$", text)


def test_what_the_death_of_a_leader_of_zookeeper_cost_is_the_longest_silence() -> None:
    told = story()
    told.faults.append(Fault("zookeeper-leader-kill", "-", 2.6, frozenset({1}), 8.0))
    [cost] = [one for one in figures(told).failovers if one.kind == "leader kill"]
    assert cost.seconds == pytest.approx(2.0)
    assert (cost.partition, cost.owned, cost.duplicates) == (1, None, 0)


def test_the_faults_of_one_subscriber_are_held_against_the_others_when_they_come_alone() -> None:
    told = story()
    a_fault_of_the_filtered_alone(told, 0.9)
    assert failing(told) == set(), "twice the half second of peaceful times"
    assert "whole during subscriber-pause of filtered: p99 0.900 s, in peace 0.500 s" in report(told, 4.0)[0]
    slow = story()
    a_fault_of_the_filtered_alone(slow, 1.2)
    assert failing(slow) == {"others_unharmed"}
    slow.faults.append(Fault("host-kill", "host-2", slow.faults[-1].begun - 1, healed=slow.faults[-1].begun))
    assert failing(slow) == set(), "the host's fault is everybody's"


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


def stored_behind_a_newer_epoch(told: Story) -> None:
    told.written.append(Written(0, 1, 50, 2))
    told.written[0] = Written(0, 51, MESSAGES * 10, 1)


def stored_under_an_epoch_that_was_over(told: Story) -> None:
    told.written[0] = Written(0, 1, MESSAGES * 10 - 1, 1)
    told.written.append(Written(0, MESSAGES * 10, MESSAGES * 10, 2))
    told.calls["filtered"].append(Row(0, MESSAGES * 10, "a", "p.1.12", 12, at=9.5))


def delivered_by_a_former_owner_what_a_later_one_stored(told: Story) -> None:
    told.written[0] = Written(0, 1, MESSAGES * 10 - 1, 1)
    told.written.append(Written(0, MESSAGES * 10, MESSAGES * 10, 2))


def delivered_by_a_former_owner_after_the_move(told: Story) -> None:
    told.moves["whole"].append(Move(FAULT_AT + 2, 0, 0, 2, 1))


def stored_by_nobody(told: Story) -> None:
    del told.written[1]


def memory_that_grows(told: Story) -> None:
    told.gauges.append(Gauge(50.0, "host-2", "memory_bytes", 1 << 30))


def handles_that_leak(told: Story) -> None:
    told.gauges.append(Gauge(50.0, "whole", "handles", 5000))


def a_queue_that_grows(told: Story) -> None:
    told.gauges.append(Gauge(50.0, "host-1", "unacknowledged_messages", 2 * (WINDOW + 64) + 1))


def nobody_looked_at_memory(told: Story) -> None:
    told.gauges = [gauge for gauge in told.gauges if gauge.what != "memory_bytes"]


def felt_by_the_others(told: Story) -> None:
    a_fault_of_the_filtered_alone(told, 1.2)


def taken_from_an_intruder(told: Story) -> None:
    told.attempts.append(Attempt(8.0, "batch", "corrupt_record", "taken"))


def refused_for_another_reason(told: Story) -> None:
    told.attempts.append(Attempt(8.0, "batch", "corrupt_record", "throttled"))


def ended_without_a_word(told: Story) -> None:
    told.attempts.append(Attempt(8.0, "noise", "closed", "untold"))


def never_refused(told: Story) -> None:
    told.attempts = [attempt for attempt in told.attempts if attempt.outcome != "corrupt_record"]


def nothing_to_refuse(told: Story) -> None:
    told.attempts.clear()


def a_queue_that_nobody_made(told: Story) -> None:
    told.leftovers.append("queue nowhere")


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
    (stored_behind_a_newer_epoch, "nothing_of_the_past"),
    (stored_under_an_epoch_that_was_over, "nothing_of_the_past"),
    (delivered_by_a_former_owner_what_a_later_one_stored, "nothing_of_the_past"),
    (delivered_by_a_former_owner_after_the_move, "nothing_of_the_past"),
    (stored_by_nobody, "nothing_of_the_past"),
    (memory_that_grows, "within_caps"),
    (handles_that_leak, "within_caps"),
    (a_queue_that_grows, "within_caps"),
    (nobody_looked_at_memory, "within_caps"),
    (felt_by_the_others, "others_unharmed"),
    (taken_from_an_intruder, "refused_without_effect"),
    (refused_for_another_reason, "refused_without_effect"),
    (ended_without_a_word, "refused_without_effect"),
    (never_refused, "refused_without_effect"),
    (nothing_to_refuse, "refused_without_effect"),
    (a_queue_that_nobody_made, "refused_without_effect"),
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
