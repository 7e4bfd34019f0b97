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
from subscriber.holding import HELD, RAISED, Unhandled
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

    def __init__(
        self, batches: list[bytes], random: Random, handle: Callable[[Message], object], within: float = 0.5
    ) -> None:  # fmt: skip
        self.strands = ScriptedStrands(random, within)
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
        meanwhile: list[tuple[int, ...]] = []

        def handle(message: Message) -> None:
            called.append(message.number)
            if message.number == 100 and not meanwhile:
                while bench.strands.step():
                    pass
                meanwhile.append((bench.site.position,))
                bench.outstay(100)
                meanwhile.append((bench.site.position, *(n for one in bench.site.ledger.parked for n in one.ids)))

        bench = Bench([batch(100, *"aab"), batch(200, *"ab-")], Random(1), handle, within=0)
        await bench.site.run(0.9)
        assert meanwhile == [(0,), (202, 100, 101, 200)]
        assert sorted(called) == [100, 102, 201, 202]
        await bench.site.run(5)

    simulated(story)


class FakePush:
    """A push of messages of a key, which writes down what becomes of it."""

    is_whole, outstay_seconds = False, 30.0

    def __init__(
        self, events: list[str], *numbers: int, during: Callable[[], object] = bool, again: bool = False
    ) -> None:  # fmt: skip
        self.turn, self._numbers, self._events, self._during, self.again = (1, 1), numbers, events, during, again

    def begin(self) -> Work:
        return Work([Message(number, b"", "", b"k", 0, "orders") for number in self._numbers], self._numbers[-1])

    def call(self, message: Message) -> None:
        self._during()
        self._events.append(f"{message.number} returns")

    def handle(self) -> None:
        self._events.append(f"{self._numbers} is handled as a whole")

    def note(self, failed: ListenerFailed) -> Unhandled:
        return Unhandled(failed.first, b"k", RAISED)

    def end_early(self, _: int) -> bool:
        return False

    def end(self, _: int, unhandled: list[Unhandled] | None) -> None:
        told = "" if unhandled is None else f" with {[(one.id, one.kind) for one in unhandled]}"
        self._events.append(f"{self._numbers} is answered{told}")


class Late:
    """A partition at whose message 1 the callback outstays its limit; `during` is what happens then."""

    def __init__(self, during: Callable[[], object]) -> None:
        self.clock, self.events, self.jobs = Clock(), list[str](), list[Callable[[], None]]()
        self.inbox = PartitionInbox()
        self.late = list[bool]()
        self.abreast = Abreast(self.inbox, lambda _, job: self.jobs.append(job), self.clock, on_late=self.late.append)
        self.inbox.begin((1, 1), 0)
        self._during = during

    def run(self) -> list[str]:
        self.take(FakePush(self.events, 1, 2, during=self._outstay))
        assert self.abreast.due() == math.inf
        while self.jobs:
            self.jobs.pop(0)()
        return self.events

    def take(self, push: FakePush) -> None:
        self.abreast.take(cast("Any", push))

    def _outstay(self) -> None:
        self.clock.now = 29.9
        self.abreast.fail_late()
        assert self.events == []
        self.clock.now = 30
        self.abreast.fail_late()
        assert self.events == ["(1, 2) is answered"], "with both of them held"
        assert [one.kind for one in self.inbox.holding.between(0, 9)] == [RAISED, HELD]
        self._during()


def test_what_comes_of_a_key_whose_callback_still_runs_is_answered_as_held() -> None:
    def more_comes() -> None:
        late.take(FakePush(late.events, 1, 2, again=True))
        late.take(FakePush(late.events, 3))

    late = Late(more_comes)
    assert late.late == []
    assert late.run() == [
        "(1, 2) is answered", f"(1, 2) is answered with [(1, {HELD}), (2, {HELD})]", "(3,) is answered", "1 returns",
    ]  # fmt: skip
    assert [one.id for one in late.inbox.holding.between(0, 9)] == [1, 2, 3]
    late.take(FakePush(late.events, 1, 2, again=True))
    late.jobs.pop(0)()
    assert late.events[4:] == ["1 returns"], "nothing is late any more"
    assert late.late == [True, False]


def test_a_list_is_not_taken_while_a_callback_of_one_of_its_keys_still_runs() -> None:
    """A batch listener that is added meanwhile gets pushes as a whole, on another thread."""

    def list_comes() -> None:
        whole = FakePush(late.events, 3)
        whole.is_whole = True
        late.take(whole)

    late = Late(list_comes)
    assert late.run() == ["(1, 2) is answered", "1 returns", "(3,) is handled as a whole"]


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
