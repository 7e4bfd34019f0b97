"""What follows the delivery in the demo is judged: all well passes, and each thing that can go wrong is named."""

from __future__ import annotations

from delivery.demo.flights import Tally
from delivery.demo.records import Received
from delivery.demo.steps import Step, audited, differing, heard

FILE = Tally(flights=3, departed=2, delay_sum=15)
CALLS = [Received(10 + number, 0, 0, 0, 0, delay, "UA") for number, delay in enumerate((5, None, 10))]
WELL = {"published": 3, "acknowledged": 3, "delivered": 3, "watched": 3, "duplicates": 2, "missing": 0}


def told(step: Step) -> list[str]:
    return differing([step])


def test_each_flight_once_with_what_the_file_says_is_as_it_should_be() -> None:
    step = heard("to again", FILE, CALLS, 1.0)
    assert (step.expected, step.found, step.agrees) == (3, 3, True)
    assert told(step) == []


def test_one_that_is_not_heard_is_a_difference() -> None:
    assert told(heard("to again", FILE, CALLS[1:], 1.0)) == [
        "deliver, to again: 2 of 3; what its callbacks read differs from the file"
    ]
    assert told(heard("to again", FILE, [], 1.0))


def test_one_that_is_heard_twice_without_a_fault_is_a_difference() -> None:
    [said] = told(heard("to again", FILE, [*CALLS, CALLS[0]], 1.0))
    assert said.startswith("deliver, to again: 3 of 3; 1 were delivered again without a fault")


def test_another_carrier_or_another_delay_is_a_difference() -> None:
    foreign = [*CALLS[:2], CALLS[2]._replace(carrier="AA")]
    later = [*CALLS[:2], CALLS[2]._replace(delay=11)]
    for calls in (foreign, later):
        assert told(heard("to again", FILE, calls, 1.0)) == [
            "deliver, to again: 3 of 3; what its callbacks read differs from the file"
        ]


def test_an_audit_may_have_duplicates_and_nothing_else() -> None:
    assert told(audited("all", 3, WELL, 1.0)) == []
    for name in ("missing", "stray", "waiting", "parked", "dead"):
        assert told(audited("all", 3, {**WELL, name: 1}, 1.0))[0].endswith(f"3 of 3; {name} 1")


def test_an_audit_that_counts_others_than_the_demo_is_a_difference() -> None:
    for name in ("published", "acknowledged", "delivered"):
        assert f"{name} 2" in told(audited("all", 3, {**WELL, name: 2}, 1.0))[0]
    assert told(audited("all", 3, {}, 1.0))[0].count("0") >= 4
