"""What a lane sends, sends again and gives up: the rules of `delivery.client.inflight` one by one."""

from __future__ import annotations

import pytest

from delivery.batch.sequences import begun_anew, follows
from delivery.client.inflight import Lane
from delivery.client.receipts import Batch
from delivery.errors import (
    ClockWrong,
    Fenced,
    HootError,
    HostUnreachable,
    InvalidRequest,
    NotOwner,
    OutOfSequence,
    QueueFull,
    StorageUnavailable,
    Throttled,
    UnknownOutcome,
    UnknownQueue,
)
from tests.lanes import SECONDS, batch, lane, launched, name_of


def opened(window: int = 8, count: int = 8) -> tuple[Lane, list[Batch]]:
    """A lane whose first batch was stored, so that its window is open; the others wait."""
    made, batches = lane(window), [batch(n) for n in range(count)]
    for one in batches:
        made.add(one)
    assert len(launched(made)) == 1
    assert made.stored() is batches[0]
    return made, batches


def test_the_first_batch_goes_alone_and_opens_the_window() -> None:
    made, _ = opened(window=3)
    assert [entry.sequence for entry in launched(made)] == [2, 3, 4]
    assert not made.may_send(0.0)


def test_a_lost_connection_sends_the_same_sequences_again_the_oldest_alone() -> None:
    made, _ = opened()
    before = [(entry.producer, entry.sequence, entry.batch) for entry in launched(made)]
    made.broken(HostUnreachable("gone"))
    assert made.settle(1.0) == []
    again = launched(made)
    assert len(again) == 1
    made.stored()
    again += launched(made)
    assert [(entry.producer, entry.sequence, entry.batch) for entry in again] == before


def test_nothing_is_sent_while_answers_to_what_follows_a_failure_are_missing() -> None:
    made, _ = opened(window=3)
    launched(made)
    made.failed(NotOwner("elsewhere"))
    assert not made.may_send(0.0)
    made.failed(NotOwner("elsewhere"))
    made.failed(NotOwner("elsewhere"))
    assert made.settle(0.0) == []
    assert [entry.sequence for entry in launched(made)] == [2]


def test_a_refused_batch_fails_alone_and_the_rest_begins_its_sequences_anew() -> None:
    made, batches = opened(window=3)
    old = launched(made)[0].producer
    made.failed(InvalidRequest("no"))
    made.failed(OutOfSequence("gap"))
    made.failed(OutOfSequence("gap"))
    [(failed, error)] = made.settle(0.0)
    assert failed is batches[1]
    assert isinstance(error, InvalidRequest)
    [entry] = launched(made)
    assert (entry.batch, entry.sequence) == (batches[2], begun_anew(1) + 1)
    assert entry.producer == old


def test_a_refusal_after_a_lost_answer_is_an_unknown_outcome() -> None:
    made, batches = opened(count=2)
    launched(made)
    made.broken(HostUnreachable("gone"))
    made.settle(0.0)
    launched(made)
    made.failed(UnknownQueue("deleted"))
    [(failed, error)] = made.settle(0.0)
    assert failed is batches[1]
    assert isinstance(error, UnknownOutcome)


def test_a_fenced_owner_leaves_the_outcome_open() -> None:
    made, _ = opened(count=2)
    launched(made)
    made.failed(Fenced("newer epoch"))
    assert made.settle(0.0) == []
    [(_, error)] = made.settle(SECONDS)
    assert isinstance(error, UnknownOutcome)


@pytest.mark.parametrize(
    "refusal", [ClockWrong("hours behind"), QueueFull("a limit"), StorageUnavailable("it could not be opened")]
)
def test_a_host_that_cannot_store_says_so_for_good_and_may_be_able_to_in_time(refusal: HootError) -> None:
    made, batches = opened(count=2)
    launched(made)
    made.failed(refusal)
    assert made.settle(0.0) == []
    [(failed, error)] = made.settle(SECONDS)
    assert failed is batches[1]
    assert error is refusal


def test_behind_one_that_was_refused_until_its_deadline_sequences_begin_anew_at_once() -> None:
    """Else the host would refuse the next one for the gap, and its publisher might hear of nothing else in its time."""
    made, _ = opened(count=1)
    made.add(batch(1))
    [before] = launched(made)
    made.failed(QueueFull("a limit"))
    [(_, error)] = made.settle(SECONDS)
    assert isinstance(error, QueueFull)
    made.add(batch(2, deadline=2 * SECONDS))
    [entry] = launched(made, SECONDS)
    assert follows(entry.sequence, before.sequence - 1)
    assert entry.sequence != before.sequence + 1


def test_a_batch_that_was_never_sent_fails_at_its_deadline_with_what_stood_in_the_way() -> None:
    made = lane()
    made.add(batch(1))
    made.blocked(Throttled("full"))
    assert made.settle(SECONDS - 1) == []
    [(_, error)] = made.settle(SECONDS)
    assert isinstance(error, Throttled)
    assert made.idle


def test_a_late_batch_in_doubt_is_still_sent_for_the_sake_of_those_behind_it() -> None:
    """Without it the host could not take them, and they may be stored already: neither may be given a new number."""
    made = lane()
    made.add(batch(0))
    launched(made)
    made.stored()
    made.add(batch(1, deadline=5.0))
    made.add(batch(2, deadline=50.0))
    first = launched(made)
    made.broken(HostUnreachable("gone"))
    [(late, error)] = made.settle(10.0)
    assert name_of(late) == 1
    assert isinstance(error, UnknownOutcome)
    assert [entry.sequence for entry in launched(made, 10.0)] == [first[0].sequence]
    assert made.stored() is None
    assert launched(made, 10.0) == [first[1]]


def test_abandoning_reports_each_once() -> None:
    made, batches = opened(window=2, count=5)
    launched(made)
    reports = made.abandon(HostUnreachable("closed"))
    assert [one for one, _ in reports] == batches[1:]
    assert [isinstance(error, UnknownOutcome) for _, error in reports] == [True, True, False, False]
    assert made.idle
    assert (made.flying, made.backlog) == (0, False)
