"""Host and subscriber with `order="key"`, both sides' decisions over a wire that keeps the order and breaks.

Whatever fails, is lost, taken over or started again: within a key nothing is handled before an earlier message is
handled or given up, nothing is lost, and no saved position covers what is neither handled, given up nor parked. A
subscriber that lives handles nothing twice, unless somebody moves the position so that it should.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from delivery.dispatch.parking import GiveUpHead, Parking, SendAgain, WaitUntil
from delivery.dispatch.retry import Failed, Kind
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from subscriber.holding import Unhandled
from subscriber.inbox import PartitionInbox, Status
from subscriber.keyed import call_again, call_by_key
from subscriber.listeners import Calls, ListenerFailed, check_listener
from tests.strategies import times

POLICY = RetryPolicy(order="key", first_seconds=1, jitter=0, deliveries_max=4)
KEYS = (b"a", b"b", b"c", None)


@cache
def message(number: int) -> Message:
    """Keys come in an order without a period of their number."""
    return Message(number, b"", "", KEYS[number * number % 7 % 4], 0, "orders")


class Push(msgspec.Struct):
    turn: tuple[int, int]
    after: int
    ids: tuple[int, ...]
    parked: tuple[tuple[int, bytes | None], ...]
    moves: int
    again: bool = False
    slot: Any = None
    settled: tuple[int, ...] = ()


class Reply(msgspec.Struct):
    push: Push
    failures: list[Unhandled]


class Subscriber:
    """The real inbox and the real calls."""

    def __init__(self, handle: Callable[[Message], object]) -> None:
        self.inbox = PartitionInbox()
        self._calls = Calls([check_listener(handle, "message")], lambda call, argument: None)

    def take(self, push: Push) -> list[Unhandled] | None:
        """What it answers; None when it calls nobody."""
        begin = self.inbox.begin(push.turn, push.after, push.moves, push.parked, retry=push.again)
        if isinstance(begin, Status):
            return None
        holding = self.inbox.holding
        if push.again:
            for number in push.settled:
                holding.settle(number)
            return call_again(self._calls, holding, map(message, push.ids), note)
        call_by_key(self._calls, holding, (message(n) for n in push.ids if n > begin), note)
        self.inbox.end(push.ids[-1])
        return holding.between(push.after, push.ids[-1])


def note(failed: ListenerFailed) -> Unhandled:
    return Unhandled(failed.first, failed.message.key, Kind.RAISED, None, "no")


class Protocol:
    """A host, a subscriber, and what is on its way between them."""

    def __init__(self) -> None:
        self.failing: set[int] = set()
        self.handled: set[int] = set()
        self.dead: set[int] = set()
        self.wrong: list[str] = []
        """What a listener cannot raise, for that would only be another failure."""
        self.restarted = False
        self.subscriber = Subscriber(self.handle)
        self.there: deque[Push] = deque()
        self.back: deque[Reply] = deque()
        self.now_ms = self.highest = self.moves = 0
        self.turn = (1, 1)
        self.saved: tuple[int, tuple[ParkedKey, ...]] = (0, ())
        self.begin_owner()

    def begin_owner(self) -> None:
        self.position, parked = self.saved
        self.parking = Parking(POLICY, parked, lambda low, high: (low + high) / 2)
        self.begin_run()

    def begin_run(self) -> None:
        self.parking.rewound()
        self.pushed, self.first = self.position, True

    def handle(self, one: Message) -> None:
        if one.number in self.failing:
            raise ValueError("no")
        before = [n for n in range(1, one.number) if one.key is not None and message(n).key == one.key]
        missing = [n for n in before if n not in self.handled and n not in self.dead]
        if missing:
            self.wrong.append(f"{one.number} was handled before {missing}")
        if one.number in self.handled and not self.restarted:
            self.wrong.append(f"{one.number} was handled twice")
        self.handled.add(one.number)

    def send(self, push: Push) -> None:
        if self.first:
            push.parked = tuple(self.parking.messages())
        self.first = False
        if self.subscriber.inbox.arrive(push.turn):
            self.there.append(push)

    def push(self, count: int) -> None:
        ids = tuple(range(self.pushed + 1, self.pushed + count + 1))
        self.send(Push(self.turn, self.pushed, ids, (), self.moves))
        self.pushed = ids[-1]
        self.highest = max(self.highest, self.pushed)

    def bring_again(self, seconds: int) -> None:
        self.now_ms += seconds * 1000
        step = self.parking.next(self.now_ms)
        if isinstance(step, GiveUpHead):
            self.dead.add(step.id)
            self.parking.gave_up(step.slot, self.now_ms)
        elif isinstance(step, SendAgain):
            self.parking.sent(step)
            self.send(Push(self.turn, self.position, step.ids, (), self.moves, True, step.slot, step.settled))

    def dispatch(self, failing: set[int]) -> None:
        if not self.there:
            return
        push = self.there.popleft()
        self.failing = {n for n in push.ids if n % 10 in failing}
        failures = self.subscriber.take(push)
        if failures is not None and push.turn == self.turn:
            self.back.append(Reply(push, failures))

    def answer(self) -> None:
        if not self.back:
            return
        reply = self.back.popleft()
        push = reply.push
        failures = [Failed(one.id, one.id, Kind(one.kind), one.after_ms, one.error, one.key) for one in reply.failures]
        if push.again:
            self.parking.answered(push.slot, failures, self.now_ms)
            return
        assert all(self.parking.park(failed, self.now_ms) for failed in failures)
        self.position = push.ids[-1]

    def save(self) -> None:
        self.saved = (self.position, self.parking.waiting())

    def break_connection(self, delivered: int) -> None:
        """Of what was on its way some still arrives, and no answer."""
        self.there = deque(list(self.there)[:delivered])
        self.back.clear()
        self.turn = (self.turn[0], self.turn[1] + 1)
        self.begin_run()

    def take_over(self) -> None:
        self.back.clear()
        self.turn = (self.turn[0] + 1, 1)
        self.begin_owner()

    def seek(self, back: int) -> None:
        """Somebody moves the position: what lies behind it has never been, and what lies before it is done."""
        to = max(0, self.position - back)
        self.saved = (to, ())
        self.handled = set(range(1, to + 1))
        self.dead.clear()
        self.there.clear()
        self.moves += 1
        self.take_over()

    def restart_subscriber(self) -> None:
        self.there.clear()
        self.back.clear()
        self.restarted = True
        self.subscriber = Subscriber(self.handle)
        self.turn = (self.turn[0], self.turn[1] + 1)
        self.begin_run()

    def holds(self) -> None:
        assert not self.wrong, self.wrong
        for position, waiting in (self.saved, (self.position, self.parking.waiting())):
            parked = {number for one in waiting for number in one.ids}
            assert all(n in parked or n in self.dead or n in self.handled for n in range(1, position + 1))

    def settle(self) -> None:
        """With a listener that takes everything, all is handled or given up in the end."""
        self.push(max(1, self.highest - self.pushed))
        for _ in range(500):
            while self.there:
                self.dispatch(set())
            while self.back:
                self.answer()
            self.bring_again(5)
            if self.parking.next(self.now_ms) == WaitUntil(None) and not self.there and not self.back:
                break
        self.holds()
        assert not self.parking
        assert set(range(1, self.position + 1)) == {*self.handled, *self.dead} & set(range(1, self.position + 1))
        assert not self.subscriber.inbox.holding


Action = Callable[[Protocol], None]

ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.integers(1, 6).map(lambda count: lambda one: one.push(count)),
    st.integers(0, 5).map(lambda seconds: lambda one: one.bring_again(seconds)),
    st.sets(st.integers(0, 9), max_size=4).map(lambda failing: lambda one: one.dispatch(failing)),
    st.sets(st.integers(0, 9), max_size=2).map(lambda failing: lambda one: one.dispatch(failing)),
    st.just(Protocol.answer),
    st.just(Protocol.answer),
    st.just(Protocol.save),
    st.integers(0, 3).map(lambda delivered: lambda one: one.break_connection(delivered)),
    st.just(Protocol.take_over),
    st.integers(0, 9).map(lambda back: lambda one: one.seek(back)),
)


def play(actions: list[Action]) -> None:
    one = Protocol()
    for action in actions:
        action(one)
        one.holds()
    one.settle()


@times(4)
@given(st.lists(ACTIONS, min_size=5, max_size=60))
def test_a_subscriber_that_lives_handles_everything_once_and_each_key_in_order(
    actions: list[Action],
) -> None:
    play(actions)


@times(4)
@given(st.lists(st.one_of(ACTIONS, ACTIONS, st.just(Protocol.restart_subscriber)), min_size=5, max_size=60))
def test_one_that_is_started_again_misses_nothing_and_overtakes_nothing(actions: list[Action]) -> None:
    play(actions)


def test_what_was_parked_before_the_subscriber_came_is_handled_once_whatever_answer_of_it_is_lost() -> None:
    """The position of the host may be behind all that a subscriber has seen, where a filter left the last of it out."""
    for position in range(3, 8):
        one = Protocol()
        one.push(3)
        one.dispatch({1})
        one.answer()
        one.position = position
        one.save()
        one.handled |= set(range(1, position + 1)) - {1}
        one.subscriber = Subscriber(one.handle)
        one.take_over()
        one.bring_again(5)
        one.dispatch(set())
        for _ in range(2):
            one.take_over()
            one.bring_again(5)
            one.dispatch(set())
        one.holds()
        one.settle()


@pytest.mark.parametrize("failing", range(1, 10))
def test_behind_a_moved_position_nothing_waits_for_what_was_held_before(failing: int) -> None:
    for back in range(12):
        play(
            [
                lambda one: one.push(9),
                lambda one: one.dispatch({failing}),
                Protocol.answer,
                partial(Protocol.seek, back=back),
                lambda one: one.push(9),
            ]
        )
