"""What is not acknowledged by hand in time, or given back: a real worker and a real subscriber's service, on a virtual
clock, with breaking connections.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st

from delivery.batch import headers_in, open_batch
from delivery.dispatch.worker import Begin
from delivery.metastore.policy import Order, RetryPolicy
from subscriber import ManualMessage, Reject, Retry
from subscriber.manual import State
from tests.dispatch import NotedLedger, simulated
from tests.strategies import times
from tests.unit.by_key import Site, batch

LIMIT = 30.0


def policy(order: Order = "partition", **more: Any) -> RetryPolicy:
    given = {"order": order, "first_seconds": 10, "jitter": 0, "ack_timeout_seconds": LIMIT, **more}
    return RetryPolicy(**given)


class Desk:
    """A partition whose messages are acknowledged by hand, and what its listener got."""

    def __init__(self, batches: list[bytes], retry: RetryPolicy) -> None:
        self.got: list[ManualMessage] = []
        self.times: list[float] = []
        self.site = Site(batches, self._take, Begin(0, 1, retry), manual=True)

    def _take(self, message: Any) -> None:
        self.got.append(message)
        self.times.append(trio.current_time())

    @property
    def parked(self) -> list[tuple[tuple[int, ...], int]]:
        """By key the messages, and how often the first one failed."""
        return [(key.ids, key.failures) for key in self.site.ledger.parked]

    @property
    def numbers(self) -> list[int]:
        return [one.number for one in self.got]

    def last(self, number: int) -> ManualMessage:
        return next(one for one in reversed(self.got) if one.number == number)

    def play(self, story: Callable[[], Any], seconds: float = 10_000) -> None:
        """Tell the story while the worker works."""

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.site.run, seconds)
                await trio.sleep(1)
                await story()
                nursery.cancel_scope.cancel()

        simulated(run)


def test_what_is_not_acknowledged_in_time_comes_again_after_the_pause_with_all_that_is_open_behind_it() -> None:
    desk = Desk([batch(100, *"abc"), batch(200, *"ab")], policy())

    async def story() -> None:
        assert desk.numbers == [100, 101, 102, 200, 201]
        assert desk.last(100).ack()
        assert desk.last(102).ack(), "behind one that is not"
        assert desk.last(201).ack()
        first = desk.last(101)
        await trio.sleep(LIMIT)
        assert not first.ack(), "too late"
        assert not desk.got[3].ack(), "nor can what had to wait for it be acknowledged before it"
        assert (desk.site.position, len(desk.got)) == (100, 5)
        failing = desk.site.ledger.failing[-1]
        assert failing is not None
        assert (failing.failures, failing.last_error) == (1, "TimeoutError: it was not acknowledged within 30 s")
        await trio.sleep(10)
        assert desk.numbers[5:] == [101, 200], "what was acknowledged does not come again"
        assert not first.ack(), "a late one counts for no later delivery"
        assert desk.last(200).ack()
        assert desk.last(101).ack()
        await trio.sleep(1)
        assert desk.site.position == 201
        await trio.sleep(1000)
        assert len(desk.got) == 7

    desk.play(story)


def test_by_key_only_its_key_waits_and_comes_again_in_order() -> None:
    desk = Desk([batch(100, *"aab"), batch(200, *"aba-")], policy("key"))

    async def story() -> None:
        for number in (100, 102, 201, 202):
            assert desk.last(number).ack()
        assert desk.last(203).extend(1000)
        await trio.sleep(LIMIT)
        assert not desk.last(101).ack()
        assert not desk.last(200).ack(), "behind it in its key"
        assert desk.parked == [], "the answer waits for what was extended"
        assert desk.last(203).ack()
        await trio.sleep(1)
        assert desk.site.position == 203
        assert desk.parked == [((101, 200), 1)]
        await trio.sleep(10)
        assert desk.numbers[7:] == [101, 200]
        assert desk.last(101).ack()
        await trio.sleep(LIMIT)  # and of what is repeated, the second is not acknowledged in time either
        assert desk.parked == [((200,), 1)]
        await trio.sleep(11)
        assert desk.last(200).ack()
        await trio.sleep(1)
        assert desk.parked == []

    desk.play(story)


def test_the_pause_grows_and_in_the_end_it_is_a_dead_letter_as_for_an_exception() -> None:
    desk = Desk([batch(100, *"ab")], policy(deliveries_max=3))

    async def story() -> None:
        assert desk.last(101).ack()
        await trio.sleep(1000)
        assert [round(time - desk.times[0]) for time in desk.times[2:]] == [40, 90], "30 + 10, 30 + 20"
        [letter] = desk.site.letters.kept
        assert (letter.message.number, letter.reason) == (100, "failed 3 times")
        assert letter.attempts.last_error == "TimeoutError: it was not acknowledged within 30 s"
        assert desk.site.position == 101

    desk.play(story)


@pytest.mark.parametrize("order", ["partition", "key"])
def test_what_is_given_back_comes_again_as_if_the_listener_had_said_so(order: Order) -> None:
    desk = Desk([batch(100, *"abcd")], policy(order, ack_timeout_seconds=0))

    async def story() -> None:
        assert desk.last(100).nack(Retry(after=50))
        assert not desk.last(100).ack(), "it was given back"
        assert not desk.last(100).nack(), "once"
        await trio.sleep(1)
        for number in (101, 102, 103):
            desk.last(number).ack()
        assert len(desk.got) == 4
        await trio.sleep(51)
        for number in (100, 101, 102, 103):
            if not desk.last(number).ack():
                break
        await trio.sleep(1)
        assert (desk.numbers[4:], desk.site.position) == (
            [100, 101, 102, 103] if order == "partition" else [100], 103,
        )  # fmt: skip
        assert not desk.last(103).nack(), "it was acknowledged"

    desk.play(story)


def test_what_is_rejected_by_hand_is_a_dead_letter_at_once() -> None:
    desk = Desk([batch(100, *"ab")], policy())

    async def story() -> None:
        assert desk.last(101).ack()
        assert desk.last(100).nack(Reject("never"))
        await trio.sleep(1)
        assert [(one.message.number, one.reason) for one in desk.site.letters.kept] == [(100, "rejected")]
        assert (desk.site.position, desk.numbers) == (101, [100, 101])

    desk.play(story)


def test_an_extension_prolongs_and_never_shortens() -> None:
    desk = Desk([batch(100, *"ab")], policy())

    async def story() -> None:
        one, two = desk.got
        assert two.extend(1)
        await trio.sleep(LIMIT - 2)
        assert one.extend(100)
        await trio.sleep(3)
        assert not two.ack()
        assert one.extend(50), "less than it has"
        await trio.sleep(90)
        assert one.ack()
        assert not two.extend(10), "it was taken back"
        await trio.sleep(1)
        assert desk.site.position == 100

    desk.play(story)


def test_without_a_limit_nothing_is_taken_back() -> None:
    desk = Desk([batch(100, *"ab")], policy(ack_timeout_seconds=0))

    async def story() -> None:
        await trio.sleep(9000)
        assert [one.ack() for one in desk.got] == [True, True]
        await trio.sleep(1)
        assert desk.site.position == 101

    desk.play(story)


@pytest.mark.parametrize("order", ["partition", "key"])
@pytest.mark.parametrize("to", [100, 102])
def test_what_was_open_when_somebody_moved_the_position_fails_no_more(order: Order, to: int) -> None:
    desk = Desk([batch(100, *"aaa"), batch(200, *"ab")], policy(order))
    site = desk.site

    async def story() -> None:
        old = list(desk.got)
        assert [one.number for one in old] == [100, 101, 102, 200, 201]
        site.worker_now.abandon()
        site.begin, site.moves, site.position = Begin(to, 1000, policy(order)), 1, to
        async with trio.open_nursery() as nursery:
            nursery.start_soon(site.worker().run, site.process)
            await trio.sleep(1)
            again = desk.numbers[5:]
            assert again == [number for number in (101, 102, 200, 201) if number > to]
            for number in again:
                desk.last(number).ack()
            await trio.sleep(1000)
            assert desk.numbers[5:] == again, "nothing comes again by what was open before"
            assert [one.ack() for one in old[: 1 if to == 100 else 3]] == [False] * (1 if to == 100 else 3)
            assert (site.position, desk.parked) == (201, [])
            nursery.cancel_scope.cancel()

    desk.play(story)


class Workers:
    """They acknowledge what they got, early, late, never, or give it back; in the end at once."""

    def __init__(self, random: Random, batches: list[bytes], retry: RetryPolicy, lose: float) -> None:
        self._random, self._by_key = random, retry.order == "key"
        self.wrong: list[str] = []
        self.open: dict[int, ManualMessage] = {}
        self.acknowledged: set[int] = set()
        self.calm = False
        self._at = 0
        """What is being acknowledged."""
        self._due: list[tuple[float, int, ManualMessage]] = []
        self._ids = [number for one in batches for number in open_batch(one).ids()]
        self._keys = {
            message.number: message.key
            for one in batches
            for _, header in headers_in(one)
            for message in open_batch(one, header).messages("orders", 0)
        }
        self.site = Site(batches, self._take, Begin(0, 1, retry), manual=True)
        self.site.process.lose = lambda: not self.calm and random.random() < lose
        self.site.ledger = NotedLedger(self._moved)

    def _moved(self, position: int) -> None:
        parked = {number for one in self.site.ledger.parked for number in one.ids}
        covered = self.acknowledged | parked | {self._at}
        missing = [n for n in self._ids if n <= position and n not in covered]
        if missing:
            self.wrong.append(f"{position} covers {missing}")
        self.site.position = position

    def _take(self, message: Any) -> object:
        number = message.number
        if number in self.acknowledged:
            self.wrong.append(f"{number} was acknowledged, and comes again")
        self._check_order(message, "comes")
        self.open[number] = message
        what = self._random.random()
        if self.calm or what < 0.4:
            self._acknowledge(message)
        elif what < 0.45:
            raise ValueError("no")
        elif what < 0.95:
            at = trio.current_time() + self._random.choice((0, 1, LIMIT / 2, LIMIT * 1.2)) * self._random.random()
            heapq.heappush(self._due, (at, len(self._due) * 100_000 + number, message))
        return None

    def _check_order(self, message: ManualMessage, what: str) -> None:
        before = [n for n in self._ids if n < message.number]
        if self._by_key:
            before = [n for n in before if message.key is not None and self._keys[n] == message.key]
        for n in before:
            known = self.open.get(n)
            there = known is not None and known.taken is not None and known.taken.state in (State.OPEN, State.REFUSED)
            if n not in self.acknowledged and not there:
                self.wrong.append(f"{message.number} {what} before {n}")

    def _acknowledge(self, message: ManualMessage) -> None:
        self._at = message.number
        if message.ack():
            self._check_order(message, "is acknowledged")
            self.acknowledged.add(message.number)

    async def work(self) -> None:
        while True:
            await trio.sleep(0.5)
            while self._due and (self._due[0][0] <= trio.current_time() or self.calm):
                _, _, message = heapq.heappop(self._due)
                what = self._random.random()
                if what < 0.15 and not self.calm:
                    message.nack(Retry(after=self._random.random()) if what < 0.07 else None)
                elif what < 0.3 and not self.calm:
                    message.extend(LIMIT * self._random.random())
                else:
                    self._acknowledge(message)

    def check(self, seconds: float) -> None:
        async def story() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.site.run, seconds)
                nursery.start_soon(self.work)
                await trio.sleep(seconds / 2)
                self.calm = True
                await trio.sleep(seconds / 2 - 1)
                nursery.cancel_scope.cancel()

        simulated(story)
        assert not self.wrong, self.wrong[:3]
        assert (self.acknowledged, self.site.position, self.site.ledger.parked) == (set(self._ids), self._ids[-1], ())


@times(2)
@given(st.integers(0, 2**32), st.sampled_from(["partition", "key"]), st.sampled_from([0.0, 0.05]))
def test_whatever_is_acknowledged_when_nothing_is_lost_nothing_comes_twice_and_nothing_overtakes(
    seed: int, order: Order, lose: float
) -> None:
    random = Random(seed)
    batches = [
        batch(1000 * n, *(random.choice("abc-") for _ in range(random.randint(1, 5))))
        for n in range(1, random.randint(2, 12))
    ]
    retry = policy(order, first_seconds=1, longest_seconds=5, ack_timeout_seconds=LIMIT)
    Workers(random, batches, retry, lose).check(4000)
