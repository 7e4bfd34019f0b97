"""What is acknowledged by hand: answers wait for the messages that they cover, whoever acknowledges and when."""

from __future__ import annotations

import math
import random
from itertools import takewhile
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from delivery.errors import InvalidRequest
from subscriber import Retry
from subscriber.manual import Kept, ManualMessage, Unacknowledged
from tests.unit.listening import message


class Desk:
    """One partition: pushes are delivered and answered."""

    def __init__(self) -> None:
        self.unacknowledged = Unacknowledged()
        self.given: list[tuple[str, object]] = []
        self.messages: dict[int, ManualMessage] = {}

    def push(self, name: str, *numbers: int, repeated: range = range(0), in_order: bool = False) -> None:
        for number in numbers:
            self.messages[number] = self.unacknowledged.deliver(message(number))
        kept = Kept(lambda reply: self.given.append((name, reply)), in_order=in_order)
        self.unacknowledged.answer(kept, repeated)


def test_an_answer_waits_for_all_of_its_messages_in_whatever_order_and_for_no_other() -> None:
    desk = Desk()
    desk.push("nothing in it")
    desk.push("a", 1, 2, 3)
    desk.push("b", 4)
    desk.push("nothing behind it")
    assert desk.given == [("nothing in it", True), ("nothing behind it", True)]
    for number in (4, 3, 1, 1):
        desk.messages[number].ack()
    assert (desk.given[2:], desk.unacknowledged.oldest()) == ([("b", True)], 2)
    desk.messages[2].ack()
    assert (desk.given[3:], desk.unacknowledged.oldest()) == ([("a", True)], 0)


def test_an_answer_that_ends_a_run_waits_for_those_before_it_too() -> None:
    desk = Desk()
    desk.push("a", 1)
    desk.push("b", 2)
    desk.push("failed", 3, in_order=True)
    desk.push("skipped", in_order=True)
    desk.push("later", 4)
    for number in (3, 4, 2):
        desk.messages[number].ack()
    assert desk.given == [("later", True), ("b", True)]
    desk.messages[1].ack()
    assert desk.given[2:] == [("a", True), ("failed", True), ("skipped", True)]


def test_an_empty_push_is_answered_when_all_that_was_pushed_before_has_ended() -> None:
    """By it a host asks whether a member still handles anything of the keys that it is to give up."""
    desk = Desk()
    desk.push("a", 1)
    empty, reply = (
        SimpleNamespace(batches=b"", after=1, again=False),
        SimpleNamespace(status=0, position=1, failures=None),
    )
    desk.unacknowledged.settle(
        cast("Any", empty),
        cast("Any", reply),
        lambda given: desk.given.append(("asked", given is reply)),
        repeated=False,
    )
    assert desk.given == []
    desk.messages[1].ack()
    assert desk.given == [("a", True), ("asked", True)]


def test_what_is_repeated_waits_for_what_was_delivered_before_and_an_ack_counts_for_both() -> None:
    desk = Desk()
    desk.push("a", 1, 2, 3)
    desk.push("again", repeated=range(1, 3))
    desk.push("behind", 4, repeated=range(3, 5))
    desk.messages[4].ack()
    desk.messages[1].ack()
    assert desk.given == []
    desk.messages[2].ack()
    assert desk.given == [("again", True)]
    desk.messages[3].ack()
    assert sorted(desk.given[1:]) == [("a", True), ("behind", True)]


def test_nothing_waits_for_what_failed() -> None:
    desk = Desk()
    for number in (1, 2, 3):
        desk.messages[number] = desk.unacknowledged.deliver(message(number))
    desk.unacknowledged.forget_within(2, 3)
    desk.push("a")
    desk.messages[1].ack()
    assert desk.given == [("a", True)]
    desk.messages[2].ack()
    desk.push("again", 2)
    assert len(desk.given) == 1, "what was acknowledged too late comes again, and is to be acknowledged again"
    desk.messages[2].ack()
    assert len(desk.given) == 2


def test_at_the_end_what_waits_is_given_up_and_later_acknowledgements_do_nothing() -> None:
    desk = Desk()
    desk.push("a", 1, 2)
    desk.messages[1].ack()
    desk.unacknowledged.end()
    assert desk.given == [("a", None)]
    assert not desk.messages[2].ack(), "it is somebody else's now"
    assert desk.messages[1].ack(), "that counted"
    desk.push("late", 3)
    assert desk.given == [("a", None), ("late", None)]
    assert not desk.messages[3].ack()


def test_what_a_listener_gets_after_the_end_cannot_be_acknowledged_even_while_it_runs() -> None:
    desk = Desk()
    desk.unacknowledged.end()
    late = desk.unacknowledged.deliver(message(1))
    assert not late.ack()
    assert not late.nack()
    assert not late.extend(5)
    assert desk.unacknowledged.oldest() == 0


def test_a_message_is_what_it_was() -> None:
    one = Unacknowledged().deliver(message(7))
    assert (one.number, one.body, one.queue, one.id) == (7, b"body", "flights", message(7).id)


@given(pushes=st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_each_answer_is_given_once_with_its_last_acknowledgement_or_with_the_last_one_up_to_it(
    pushes: list[tuple[int, bool]], seed: int
) -> None:
    desk, first = Desk(), 1
    left: dict[str, set[int]] = {}
    for place, (size, in_order) in enumerate(pushes):
        numbers = range(first, first + size)
        left[str(place)] = set(numbers)
        desk.push(str(place), *numbers, in_order=in_order)
        first += size
    order = list(range(1, first))
    random.Random(seed).shuffle(order)
    for number in order:
        desk.messages[number].ack()
        for numbers_left in left.values():
            numbers_left.discard(number)
        before = {name for name, _ in takewhile(lambda one: not one[1], left.items())}
        free = {name for name, (_, in_order) in zip(left, pushes, strict=True) if not (in_order or left[name])}
        assert {name for name, _ in desk.given} == before | free
    assert len(desk.given) == len(pushes)


def test_a_limit_counts_from_the_end_of_the_callback_and_an_extension_from_now_and_the_later_one_holds() -> None:
    now, rung = 100.0, list[float]()
    unacknowledged = Unacknowledged(lambda: now, rung.append)
    one, two = (unacknowledged.deliver(message(number)) for number in (1, 2))
    assert unacknowledged.due(30) == math.inf, "the callback runs"
    now = 105.0
    unacknowledged.answer(Kept(bool, in_order=False), limit=30)
    assert (unacknowledged.due(30), rung) == (135, [135])
    assert unacknowledged.due(0) == math.inf
    assert two.extend(10)
    assert one.extend(100)
    assert one.extend(50)
    assert unacknowledged.due(30) == 135
    assert two.ack()
    assert unacknowledged.due(30) == 205
    now = 204.9
    assert unacknowledged.lapsed(30) == []
    now = 205.0
    assert unacknowledged.lapsed(30) == [one.taken]
    assert one.nack()
    assert rung[-1] == now


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 8 * 86_400, "1"])
def test_what_is_no_time_and_no_exception_is_refused_and_changes_nothing(seconds: Any) -> None:
    desk = Desk()
    desk.push("a", 1)
    with pytest.raises(InvalidRequest, match="a message can be kept for 0 to 604800 seconds more"):
        desk.messages[1].extend(seconds)
    for why in (SystemExit(1), "no", Retry):
        with pytest.raises(InvalidRequest, match="with an exception, or with nothing"):
            desk.messages[1].nack(cast("Any", why))
    assert desk.messages[1].ack()


def test_a_message_without_a_subscription_can_be_acknowledged_in_tests_of_applications() -> None:
    one = ManualMessage(7, b"", "", None, 0, "flights")
    assert (one.ack(), one.nack(), one.extend(1)) == (True, False, False)
