"""Whatever of what is to be acknowledged by hand is acknowledged when, with breaking connections."""

from __future__ import annotations

import heapq
from random import Random
from typing import Any

import trio
from hypothesis import given, strategies as st

from delivery.batch import headers_in, open_batch
from delivery.dispatch.worker import Begin
from delivery.metastore.policy import Order, RetryPolicy
from subscriber import ManualMessage, Retry
from subscriber.manual import State
from tests.dispatch import NotedLedger, simulated
from tests.strategies import times
from tests.unit.by_hand import LIMIT, policy
from tests.unit.by_key import Site, batch


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
            await trio.sleep(2)
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


@times(1)
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
    Workers(random, batches, retry, lose).check(2000)
