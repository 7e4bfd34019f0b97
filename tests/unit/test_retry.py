"""How long a partition waits for a message that was not handled, and what is counted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from delivery.cli import retrying
from delivery.dispatch.retry import Again, Failed, FirstInLine, GiveUp, Kind, checked, pause
from delivery.errors import InvalidRequest, ProtocolError
from delivery.metastore.managers.records import Attempts
from delivery.metastore.policy import RetryPolicy, changed_policy, retry_asked
from tests.dispatch import Refusal

STEADY = RetryPolicy(first_seconds=10, factor=2, longest_seconds=60, jitter=0)


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def failed(number: int, kind: Kind = Kind.RAISED, after_ms: int | None = None, error: str = "no") -> Failed:
    return Failed(number, number, kind, after_ms, error)


def wait(line: FirstInLine, failed: Failed) -> float:
    decision = line.failed(failed)
    assert isinstance(decision, Again)
    return decision.seconds


def test_pauses_grow_by_the_factor_up_to_the_longest() -> None:
    assert [pause(STEADY, failures, middle) for failures in range(1, 6)] == [10, 20, 40, 60, 60]


@given(
    failures=st.integers(1, 10**9), first=st.floats(0.001, 86_400), factor=st.floats(1, 100), more=st.floats(0, 86_400),
    jitter=st.floats(0, 1), drawn=st.floats(0, 1),
)  # fmt: skip
def test_no_policy_and_no_number_of_failures_leads_out_of_the_bounds(
    failures: int, first: float, factor: float, more: float, jitter: float, drawn: float
) -> None:
    policy = RetryPolicy(first_seconds=first, factor=factor, longest_seconds=first + more, jitter=jitter)
    retry_asked(policy)
    found = pause(policy, failures, lambda low, high: low + drawn * (high - low))
    assert first * (1 - jitter) * 0.999 <= found <= (first + more) * (1 + jitter) * 1.001


def test_failures_are_counted_per_message_with_their_first_and_last_error() -> None:
    line = FirstInLine(STEADY, None, middle)
    assert [wait(line, failed(8, error=error)) for error in ("first", "second", "third")] == [10, 20, 40]
    assert line.attempts == Attempts(7, 3, "first", "third")
    assert wait(line, failed(9)) == 10
    assert line.attempts == Attempts(8, 1, "no", "no")


def test_what_an_earlier_owner_counted_counts() -> None:
    line = FirstInLine(STEADY, Attempts(7, 2, "first", "second"), middle)
    assert wait(line, failed(8)) == 40
    assert line.attempts == Attempts(7, 3, "first", "no")


def test_a_listener_that_says_when_is_believed_and_counted() -> None:
    line = FirstInLine(STEADY, None, middle)
    assert wait(line, failed(8, Kind.RETRY, 1500)) == 1.5
    assert wait(line, failed(8, Kind.RETRY, 0)) == 0
    assert wait(line, failed(8, Kind.RETRY)) == 40


def test_pushes_that_came_to_nothing_wait_longer_and_longer_and_are_no_failures_of_a_message() -> None:
    line = FirstInLine(STEADY, None, middle)
    assert [line.refused() for _ in range(3)] == [10, 20, 40]
    assert line.attempts is None
    line.failed(failed(8))
    assert line.refused() == 10


def test_a_message_is_given_up_at_its_last_delivery_and_one_that_is_rejected_at_once() -> None:
    policy = RetryPolicy(deliveries_max=3, jitter=0)
    line = FirstInLine(policy, None, middle)
    assert [wait(line, failed(8)) for _ in range(2)] == [10, 20]
    assert line.failed(failed(8)) == GiveUp(8, "failed 3 times", Attempts(7, 3, "no", "no"))
    assert line.failed(failed(9, Kind.REJECTED)) == GiveUp(9, "rejected", Attempts(8, 1, "no", "no"))


def test_what_fails_together_comes_again_one_by_one_before_anything_is_given_up() -> None:
    line = FirstInLine(RetryPolicy(deliveries_max=1), None, middle)
    together = Failed(8, 20, Kind.REJECTED)
    assert line.failed(together) == Again(0, singly_until=20)
    assert line.failed(failed(9, Kind.REJECTED)) == GiveUp(9, "rejected", Attempts(8, 1, "no", "no"))


def test_a_message_that_nobody_could_read_is_never_given_up() -> None:
    line = FirstInLine(RetryPolicy(deliveries_max=1, jitter=0), None, middle)
    assert [wait(line, failed(8, Kind.UNREADABLE)) for _ in range(3)] == [10, 20, 40]


@pytest.mark.parametrize(
    "wrong",
    [
        Refusal(5, 5), Refusal(21, 21), Refusal(8, 7), Refusal(8, 21), Refusal(8, 8, kind=99),
        Refusal(8, 8, afterMs=-1), Refusal(None, 8), Refusal(8, 8, kind=None),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_failure_that_cannot_be_is_the_listeners_fault_and_not_the_messages(wrong: Refusal) -> None:
    with pytest.raises(ProtocolError):
        checked(wrong, handled=5, last_id=20)


def test_long_errors_are_cut() -> None:
    assert len(checked(Refusal(8, 8, error="x" * 5000), 5, 20).error) == 200
    assert checked(Refusal(8, 8, error=None), 5, 20).error == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_seconds": 0}, {"first_seconds": -1}, {"first_seconds": "10"}, {"factor": 0.5}, {"jitter": 2},
        {"first_seconds": True}, {"longest_seconds": 1, "first_seconds": 2}, {"longest_seconds": float("nan")},
        {"deliveries_max": -1}, {"deliveries_max": 1.5}, {"dead_letters": 1}, {"ack_timeout_seconds": -1},
        {"ack_timeout_seconds": 8 * 86_400},
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_is_refused_by_the_name_of_what_is_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        retry_asked(RetryPolicy(**wrong))
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        changed_policy(RetryPolicy(), retry_asked(wrong), "orders", "mail")


def test_an_operator_reads_in_a_line_what_a_policy_means_and_which_limits_of_time_it_sets() -> None:
    asked = retry_asked(retrying.asked(["timeout_seconds=30s", "ack_timeout_seconds=5m", "order=key"]))
    policy = changed_policy(RetryPolicy(), asked, "orders", "mail")
    assert (policy.timeout_seconds, policy.ack_timeout_seconds) == (30, 300)
    assert retrying.described(policy).endswith("never given up, 30s for callbacks, 5m for acknowledgements")
    assert retrying.described(RetryPolicy()).endswith("never given up")


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(InvalidRequest, match=r"first_seconds.*factor.*jitter"):
        retry_asked(RetryPolicy(first_seconds=0, factor=0, jitter=9))
    with pytest.raises(InvalidRequest, match=r"no nope, retries: it has order"):
        retry_asked({"retries": 1, "nope": 2})
    with pytest.raises(InvalidRequest, match="RetryPolicy"):
        retry_asked("quickly")  # type: ignore[arg-type]


def test_fields_that_are_named_change_none_means_the_default_and_the_rest_stays() -> None:
    known = RetryPolicy(order="key", first_seconds=700, longest_seconds=900, deliveries_max=4)
    asked = retry_asked({"first_seconds": 800, "deliveries_max": None})
    assert changed_policy(known, asked, "orders", "mail") == msgspec.structs.replace(
        known, first_seconds=800, deliveries_max=0
    )
    assert changed_policy(known, retry_asked(None), "orders", "mail") == known
    assert changed_policy(known, retry_asked(RetryPolicy()), "orders", "mail") == RetryPolicy()
    with pytest.raises(InvalidRequest, match="longest_seconds must not be below"):
        changed_policy(known, retry_asked({"longest_seconds": None}), "orders", "mail")
