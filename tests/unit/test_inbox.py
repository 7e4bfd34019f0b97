"""The subscriber's inbox: which pushes reach listeners, from which id on, and what position is answered."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from subscriber.inbox import Inbox, PartitionInbox, Status, Turn

FIRST: Turn = (1, 10)


def begun(inbox: PartitionInbox, turn: Turn, after: int) -> Status | int:
    """A push that is dispatched as soon as it arrives."""
    return inbox.begin(turn, after) if inbox.arrive(turn) else Status.STALE


def test_a_push_of_another_partition_is_unknown_here() -> None:
    inbox = Inbox([0, 2])
    assert inbox.arrive(1, FIRST) is Status.UNKNOWN
    assert inbox.arrive(-1, FIRST) is Status.UNKNOWN
    assert isinstance(inbox.arrive(2, FIRST), PartitionInbox)


def test_partitions_do_not_know_of_each_other() -> None:
    inbox = Inbox([0, 1])
    inbox.arrive(0, (9, 9))
    assert isinstance(inbox.arrive(1, FIRST), PartitionInbox)


def test_the_first_push_begins_where_its_owner_says() -> None:
    assert begun(PartitionInbox(), FIRST, 700) == 700


def test_pushes_of_a_turn_follow_one_another_also_over_ids_that_the_topics_leave_out() -> None:
    inbox = PartitionInbox()
    assert begun(inbox, FIRST, 0) == 0
    assert inbox.end(50) == 50
    assert begun(inbox, FIRST, 50) == 50
    assert inbox.end(80) == 80
    assert begun(inbox, FIRST, 120) == 120


def test_what_was_handled_comes_again_when_the_position_was_moved_by_hand_and_not_otherwise() -> None:
    inbox = PartitionInbox()
    assert begun(inbox, FIRST, 0) == 0
    inbox.end(80)
    assert begun(inbox, (1, 11), 20) == 80, "an owner that rewinds repeats what was handled"
    assert inbox.arrive((1, 12))
    assert inbox.begin((1, 12), 20, moves=1) == 20
    inbox.end(50)
    assert inbox.arrive((1, 13))
    assert inbox.begin((1, 13), 20, moves=1) == 50, "the same move counts once"


@pytest.mark.parametrize("stale", [(1, 9), (0, 99)], ids=["an older run", "an older epoch"])
def test_a_push_of_an_older_turn_is_stale_when_it_arrives(stale: Turn) -> None:
    inbox = PartitionInbox()
    inbox.arrive(FIRST)
    assert not inbox.arrive(stale)


def test_a_push_that_waited_while_a_newer_turn_arrived_is_stale_when_it_is_begun() -> None:
    inbox = PartitionInbox()
    assert inbox.arrive(FIRST)
    assert inbox.arrive((2, 0))
    assert inbox.begin(FIRST, 0) is Status.STALE
    assert inbox.begin((2, 0), 0) == 0


def test_the_first_push_of_each_later_owner_tells_the_former_one() -> None:
    inbox = PartitionInbox()
    told = []
    for turn in [(3, 1), (3, 1), (3, 2), (4, 1), (4, 1), (3, 9), (4, 2), (9, 1), (9, 1)]:
        begun(inbox, turn, 0)
        told.append(inbox.moved_from)
    assert told == [None, None, None, 3, None, None, None, 4, None]


def test_an_owner_whose_push_came_too_late_to_be_begun_was_none() -> None:
    inbox = PartitionInbox()
    begun(inbox, (1, 1), 0)
    assert inbox.arrive((2, 1))
    assert inbox.arrive((3, 1))
    assert inbox.begin((2, 1), 0) is Status.STALE
    assert inbox.moved_from is None
    inbox.begin((3, 1), 0)
    assert inbox.moved_from == 1


def test_after_a_failure_the_turn_is_skipped_and_the_next_run_goes_on_behind_what_was_handled() -> None:
    inbox = PartitionInbox()
    begun(inbox, FIRST, 0)
    assert inbox.fail(30) == 30
    assert begun(inbox, FIRST, 50) is Status.SKIPPED
    assert begun(inbox, FIRST, 90) is Status.SKIPPED
    assert begun(inbox, (1, 11), 0) == 30
    assert inbox.end(50) == 50
    assert begun(inbox, (1, 11), 50) == 50


def test_what_was_handled_here_is_not_delivered_again_after_a_failover() -> None:
    inbox = PartitionInbox()
    begun(inbox, FIRST, 100)
    inbox.end(500)
    assert begun(inbox, (2, 1), 250) == 500


@pytest.mark.parametrize("after", [40, 900], ids=["behind all that was seen", "ahead of it"])
def test_a_turn_that_begins_outside_of_what_was_handled_skips_nothing(after: int) -> None:
    """Ids between may have been handled by another subscriber, or never: this inbox cannot know."""
    inbox = PartitionInbox()
    begun(inbox, FIRST, 100)
    inbox.end(500)
    assert begun(inbox, (1, 11), after) == after
    inbox.end(1000)
    assert begun(inbox, (1, 12), after + 1) == 1000
    assert begun(inbox, (1, 13), after - 1) == after - 1


class Owner(RuleBasedStateMachine):
    """An honest but unlucky owner against the inbox, and the record of what listeners handled.

    The owner pushes ids 1, 2, 3 … in pieces, several before the first answer; answers get lost, listeners fail in the
    middle, owners change. Whatever happens: an id is handled only when all before it are, and none twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inbox = PartitionInbox()
        self.turn: Turn = (1, 1)
        self.acknowledged = self.pushed = 0
        self.waiting: list[tuple[Turn, int, int]] = []
        self.handled: list[int] = []

    @rule(size=st.integers(1, 5))
    def push(self, size: int) -> None:
        if self.inbox.arrive(self.turn):
            self.waiting.append((self.turn, self.pushed, self.pushed + size))
        self.pushed += size

    @precondition(lambda self: self.waiting)
    @rule(outcome=st.sampled_from(["answered", "answer lost"]))
    def dispatch(self, outcome: str) -> None:
        turn, after, last = self.waiting.pop(0)
        begin = self.inbox.begin(turn, after)
        if isinstance(begin, Status):
            assert turn < self.turn or begin is Status.SKIPPED
            return
        self.handled += range(begin + 1, last + 1)
        position = self.inbox.end(last)
        if outcome == "answered" and turn == self.turn:
            self.acknowledge(position)

    @precondition(lambda self: self.waiting)
    @rule(good=st.integers(0, 3))
    def dispatch_to_a_failing_listener(self, good: int) -> None:
        turn, after, last = self.waiting.pop(0)
        begin = self.inbox.begin(turn, after)
        if isinstance(begin, Status):
            return
        fails_at = begin + 1 + good
        if fails_at > last:
            self.handled += range(begin + 1, last + 1)
            self.inbox.end(last)
            return
        self.handled += range(begin + 1, fails_at)
        position = self.inbox.fail(fails_at - 1)
        assert after <= position < last
        if turn == self.turn:
            self.acknowledge(position)

    @rule(next_turn=st.sampled_from(["run", "epoch"]), lost=st.integers(0, 4))
    def rewind(self, next_turn: str, lost: int) -> None:
        """The same owner goes back to its position; another one to a checkpoint that lags behind it."""
        epoch, run = self.turn
        self.turn = (epoch, run + 1) if next_turn == "run" else (epoch + 1, 1)
        if next_turn == "epoch":
            self.acknowledged = max(0, self.acknowledged - lost)
        self.pushed = self.acknowledged

    def acknowledge(self, position: int) -> None:
        self.acknowledged = max(self.acknowledged, min(position, self.handled[-1] if self.handled else 0))

    @invariant()
    def handled_in_order_without_a_gap_or_a_duplicate(self) -> None:
        assert self.handled == list(range(1, len(self.handled) + 1))

    @invariant()
    def no_position_passes_what_was_handled(self) -> None:
        assert self.acknowledged <= len(self.handled)
        assert self.inbox.position <= max(len(self.handled), 0)


TestOwner = Owner.TestCase


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_turns_that_are_taken_only_rise(turns: list[Turn]) -> None:
    inbox = PartitionInbox()
    taken = [turn for turn in turns if inbox.arrive(turn)]
    assert taken == sorted(taken)
