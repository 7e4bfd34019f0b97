"""The window: what may be out, and the position behind which everything was acknowledged."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from delivery.dispatch.window import Sent, Window
from delivery.errors import ProtocolError


def filled(*last_ids: int) -> tuple[Window, list[Sent]]:
    """A window at position 0 with a push of one message of one byte per id."""
    window = Window(0, 100, 100)
    return window, [window.admit(last_id, 1, 1) for last_id in last_ids]


def test_acknowledgements_out_of_order_move_the_position_only_over_the_contiguous_prefix() -> None:
    window, (first, second, third) = filled(10, 20, 30)
    assert not window.finish(third)
    assert not window.finish(second)
    assert window.position == 0
    assert window.finish(first)
    assert window.position == 30
    assert window.empty


def test_an_acknowledgement_of_an_earlier_run_changes_nothing() -> None:
    window, (first,) = filled(10)
    window.rewind()
    again = window.admit(10, 1, 1)
    assert not window.finish(first)
    assert window.position == 0
    assert window.finish(again)


def test_the_same_acknowledgement_twice_counts_once() -> None:
    window, (first, second) = filled(10, 20)
    window.finish(second)
    assert not window.finish(second)
    assert window.unacknowledged == 1
    assert window.finish(first)


def test_a_failure_keeps_what_was_handled_and_forgets_the_rest() -> None:
    window, (first, second) = filled(10, 20)
    window.finish(first)
    assert window.fail(second, 15)
    assert window.position == 15
    assert window.empty
    assert window.admit(20, 1, 1).told == 15


def test_a_failure_behind_an_unanswered_push_does_not_move_the_position() -> None:
    window, (_, second) = filled(10, 20)
    assert not window.fail(second, 15)
    assert window.position == 0


@pytest.mark.parametrize("handled", [-1, 9, 20, 99])
def test_a_failure_outside_its_push_is_refused_and_still_ends_the_run(handled: int) -> None:
    window, (first, second) = filled(10, 20)
    window.finish(first)
    with pytest.raises(ProtocolError):
        window.fail(second, handled)
    assert window.position == 10
    assert window.empty


def test_one_push_may_always_go_out_and_the_next_only_within_both_limits() -> None:
    window = Window(0, messages_max=10, bytes_max=100)
    assert window.has_room(5000, 5000)
    window.admit(1, 8, 50)
    assert window.has_room(2, 50)
    assert not window.has_room(3, 1)
    assert not window.has_room(1, 51)


def test_what_is_answered_gives_room_for_more_up_to_what_a_fault_may_deliver_twice() -> None:
    window = Window(0, messages_max=30, bytes_max=300)
    window.messages_max = 10
    first, *others = [window.admit(number, 5, 10) for number in (10, 20)]
    assert not window.has_room(5, 10)
    for last_id in (30, 40, 50, 60):
        window.finish(others.pop())
        assert window.has_room(5, 10)
        others.append(window.admit(last_id, 5, 10))
    window.finish(others.pop())
    assert (window.unacknowledged, window.has_room(5, 10)) == (5, False)
    window.finish(first)
    assert (window.position, window.has_room(10, 300), window.has_room(5, 301)) == (60, True, True)
    window.admit(70, 5, 290)
    assert not window.has_room(1, 11)


def test_what_a_filter_leaves_out_is_covered_by_the_push_behind_it_also_after_a_rewind() -> None:
    window, (first,) = filled(10)
    window.finish(first)
    assert window.skip(20)
    assert window.position == 20
    for _ in range(2):
        window.rewind()
        assert window.admit(30, 1, 5).told == 10
        assert not window.skip(40)
        assert window.admit(50, 1, 5).told == 30


def test_a_listener_that_fails_at_the_first_message_behind_what_a_filter_left_out_moves_nothing_back() -> None:
    window, (first,) = filled(10)
    window.finish(first)
    assert window.skip(20)
    push = window.admit(30, 1, 5)
    assert not window.fail(push, push.told)
    assert window.position == 20
    assert window.fail(window.admit(30, 1, 5), 25)
    assert (window.position, window.admit(30, 1, 5).told) == (25, 25)


def test_a_message_that_was_given_up_is_behind_what_the_next_push_follows() -> None:
    """Its listener may hold it, and would hold what follows it of its key as long as it does."""
    window, (first,) = filled(10)
    window.finish(first)
    assert window.skip(20)
    assert window.told == 10
    window.pass_over(30)
    assert (window.position, window.told, window.admit(40, 1, 1).told) == (30, 30, 30)


def test_the_only_message_that_is_out_is_told_by_its_id_whatever_is_skipped_behind_it() -> None:
    window = Window(0, 100, 100)
    window.singly_until = 50
    sent = window.admit(10, 1, 1)
    window.skip(20)
    assert (window.alone, window.last_id) == (10, 10)
    window.withdraw(sent)
    assert (window.alone, window.last_id, window.told) == (0, 0, 0)


def test_what_is_skipped_moves_the_position_at_once_or_with_the_push_before_it() -> None:
    window = Window(0, 10, 10)
    assert window.skip(5)
    assert (window.position, window.empty) == (5, True)
    first, second = window.admit(10, 10, 10), window.admit(20, 1, 1)
    for last_id in range(21, 1000):
        assert not window.skip(last_id)
    assert window.unacknowledged == 11
    assert not window.finish(second)
    assert window.finish(first)
    assert (window.position, window.empty) == (999, True)


class WindowAgainstModel(RuleBasedStateMachine):
    """Random pushes, acknowledgements in any order, failures and rewinds against a model that keeps every id."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(0, 1000, 10_000)
        self.acknowledged = {0}
        self.sent: list[Sent] = []
        self.stale: list[Sent] = []
        self.before = 0

    @rule(span=st.integers(1, 50), messages=st.integers(0, 300), size=st.integers(0, 4000))
    def push(self, span: int, messages: int, size: int) -> None:
        if self.window.has_room(messages, size):
            last = self.sent[-1].last_id if self.sent else self.window.position
            self.sent.append(self.window.admit(last + span, messages, size))

    @rule(span=st.integers(1, 50))
    def skip(self, span: int) -> None:
        last = self.sent[-1].last_id if self.sent else self.window.position
        covered = not self.sent or self.sent[-1].done
        assert self.window.skip(last + span) == (not self.sent)
        if covered:
            self.acknowledged.update(range(last + 1, last + span + 1))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.sent))
        self.window.finish(sent)
        self.acknowledged.update(range(sent.told + 1, sent.last_id + 1))
        while self.sent and self.sent[0].done:
            self.stale.append(self.sent.pop(0))

    @precondition(lambda self: any(not sent.done for sent in self.sent))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        sent = next(sent for sent in self.sent if not sent.done)
        handled = data.draw(st.integers(sent.told, sent.end - 1))
        self.acknowledged.update(range(sent.told + 1, handled + 1))
        self.window.fail(sent, handled)
        self._forget()

    @rule()
    def rewind(self) -> None:
        self.window.rewind()
        self._forget()

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def late_answer(self, data: st.DataObject) -> None:
        assert not self.window.finish(data.draw(st.sampled_from(self.stale)))

    def _forget(self) -> None:
        self.stale += self.sent
        self.sent = []

    @invariant()
    def position_covers_only_acknowledged_ids_and_never_falls(self) -> None:
        assert self.window.position >= self.before
        assert all(i in self.acknowledged for i in range(self.before, self.window.position + 1))
        assert all(sent.told < sent.end <= sent.last_id for sent in self.sent)
        self.before = self.window.position

    @invariant()
    def unacknowledged_is_what_is_out(self) -> None:
        assert self.window.unacknowledged == sum(sent.messages for sent in self.sent if not sent.done)


WindowAgainstModel.TestCase.settings = settings(stateful_step_count=40)
TestWindowAgainstModel = WindowAgainstModel.TestCase
