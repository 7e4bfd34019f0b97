"""Callbacks that take longer than they may: sync ones, which nothing can stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from delivery.batch import headers_in, open_batch
from delivery.dispatch.worker import Begin
from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from subscriber import Retry
from subscriber.abreast import Abreast, Work
from subscriber.holding import RAISED, Unhandled
from subscriber.inbox import PartitionInbox
from subscriber.listeners import Calls, Form, ListenerFailed, check_listener
from tests.dispatch import NotedLedger, simulated
from tests.strategies import times
from tests.unit.by_key import ScriptedStrands, Site, batch
from tests.unit.listening import MESSAGES, hop


class Clock:
    """It stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("form", ["message", "batch"])
@pytest.mark.parametrize("ending", [None, Retry(after=1), ValueError("no")])
def test_what_a_sync_listener_says_after_its_limit_counts_for_nothing(form: Form, ending: Exception | None) -> None:
    clock = Clock()

    def slow(_: object) -> object:
        clock.now += 31
        if isinstance(ending, ValueError):
            raise ending
        return ending

    calls = Calls([check_listener(slow, form)], hop, timeout_seconds=30, clock=clock)
    with pytest.raises(ListenerFailed) as failed:
        calls.run(MESSAGES)
    assert isinstance(failed.value.__cause__, TimeoutError)
    assert "took 31 s, and 30 s are its limit" in str(failed.value.__cause__)
    assert (failed.value.first, failed.value.last) == (10, 10 if form == "message" else 16)


def test_within_its_limit_a_sync_listener_says_what_it_says_and_what_ends_a_program_does_so_after_it() -> None:
    clock, endings = Clock(), iter([None, ValueError("no"), SystemExit(3)])

    def listener(_: object) -> None:
        clock.now += 30
        if (ending := next(endings)) is not None:
            clock.now += 1000 if isinstance(ending, SystemExit) else 0
            raise ending

    calls = Calls([check_listener(listener, "message")], hop, timeout_seconds=30, clock=clock)
    for expected in (ValueError, SystemExit):
        with pytest.raises(ListenerFailed) as failed:
            calls.run(MESSAGES)
        assert isinstance(failed.value.__cause__, expected)


def test_how_long_several_listeners_may_take_together() -> None:
    async def async_one(_: object) -> None: ...

    def of(*listeners: Callable[..., object], seconds: float = 30) -> float:
        return Calls([check_listener(one, "message") for one in listeners], hop, None, seconds).outstay_seconds

    assert of(print) == 30
    assert of(print, repr) == 60, "with less, neither may have taken too long"
    assert of(print, async_one) == 0, "the other one's time in the queue of the loop is not its own"
    assert of(print, seconds=0) == 0


class Bench:
    """A partition whose keys are worked off side by side, by callbacks some of which outstay their limit."""

    def __init__(self, batches: list[bytes], random: Random, handle: Callable[[Message], object]) -> None:
        self.strands = ScriptedStrands(random)
        policy = RetryPolicy(order="key", first_seconds=1, jitter=0, timeout_seconds=1_000_000)
        self.site = Site(batches, handle, Begin(0, 1, policy), strands=self.strands)

    def outstay(self, number: int) -> None:
        """The callback that is at a message takes longer than it may."""
        [abreast] = self.site.process.service.attached["orders"].side_by_side.values()
        abreast._running[number].due = -math.inf
        abreast.fail_late()


def test_a_callback_that_hangs_holds_up_its_key_alone_and_its_message_is_parked_at_the_limit() -> None:
    async def story() -> None:
        called: list[int] = []

        def handle(message: Message) -> None:
            called.append(message.number)
            if called == [100]:
                bench.outstay(100)
                while bench.strands.step():
                    pass

        bench = Bench([batch(100, *"aab"), batch(200, *"ab-")], Random(1), handle)
        await bench.site.run(0.9)
        assert [one.ids for one in bench.site.ledger.parked] == [(100, 101, 200)]
        assert bench.site.position == 202
        assert 101 not in called

    simulated(story)


class FakePush:
    """A push of one message of a key, which writes down what becomes of it."""

    again, is_whole, outstay_seconds = False, False, 30.0

    def __init__(self, number: int, events: list[str], during: Callable[[], object] = bool) -> None:
        self.turn, self._number, self._events, self._during = (1, 1), number, events, during

    def begin(self) -> Work:
        return Work([Message(self._number, b"", "", b"k", 0, "orders")], self._number)

    def call(self, message: Message) -> None:
        self._during()
        self._events.append(f"{message.number} returns")

    def handle(self) -> None:
        self._events.append(f"{self._number} is handled as a whole")

    def note(self, failed: ListenerFailed) -> Unhandled:
        return Unhandled(failed.first, b"k", RAISED)

    def end_early(self, _: int) -> bool:
        return False

    def end(self, *_: object) -> None:
        self._events.append(f"{self._number} is answered")


def test_a_list_is_not_taken_while_a_callback_of_one_of_its_keys_still_runs() -> None:
    """A batch listener that is added meanwhile gets pushes as a whole, on another thread."""
    clock, events, jobs, inbox = Clock(), list[str](), list[Callable[[], None]](), PartitionInbox()
    abreast = Abreast(inbox, lambda _, job: jobs.append(job), clock)
    inbox.begin((1, 1), 0)
    whole = FakePush(2, events)
    whole.is_whole = True

    def during() -> None:
        clock.now = 29.9
        abreast.fail_late()
        assert events == []
        clock.now = 30
        abreast.fail_late()
        assert events == ["1 is answered"]
        abreast.take(cast("Any", whole))

    abreast.take(cast("Any", FakePush(1, events, during)))
    assert abreast.due() == math.inf
    jobs.pop()()
    assert events == ["1 is answered", "1 returns", "2 is handled as a whole"]


@times(1)
@given(st.integers(0, 2**32))
def test_whatever_outstays_no_two_callbacks_of_a_key_run_at_once_and_all_is_handled_in_its_order(seed: int) -> None:
    async def story() -> None:
        random = Random(seed)
        handled: list[Message] = []
        running: set[bytes | int] = set()
        wrong: list[str] = []

        def handle(message: Message) -> object:
            slot = message.number if message.key is None else message.key
            if slot in running:
                wrong.append(f"two callbacks of {slot!r} at the same time")
            running.add(slot)
            try:
                return act(message, random.random())
            finally:
                running.discard(slot)

        def act(message: Message, what: float) -> object:
            if what < 0.15:
                bench.outstay(message.number)
                for _ in range(random.randrange(6)):
                    bench.strands.step()
                return None  # too late
            if what < 0.25:
                raise ValueError("no")
            handled.append(message)
            return None

        batches = [
            batch(1000 * n, *(random.choice("abcde-") for _ in range(random.randint(1, 6))))
            for n in range(1, random.randint(2, 20))
        ]
        ids = [number for one in batches for number in open_batch(one).ids()]
        bench = Bench(batches, random, handle)
        site = bench.site
        site.process.lose = lambda: random.random() < 0.03

        def moved(position: int) -> None:
            covered = {one.number for one in handled} | {number for one in site.ledger.parked for number in one.ids}
            wrong.extend(f"{position} covers {n}" for n in ids if n <= position and n not in covered)
            site.position = position

        site.ledger = NotedLedger(moved)
        await site.run(2000)
        assert not wrong, wrong[:3]
        for key in b"abcde":
            mine = [one.number for one in handled if one.key == bytes([key])]
            assert mine == sorted(set(mine))
        assert sorted(one.number for one in handled) == ids, "each once"
        assert (site.position, site.ledger.parked) == (max(h.last_id for o in batches for _, h in headers_in(o)), ())

    simulated(story)
