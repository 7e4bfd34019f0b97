"""A SubscriptionWorker with `order="key"` and a real subscriber's service, on a virtual clock."""

from __future__ import annotations

from random import Random
from typing import Literal

import pytest
import trio

from delivery.batch import peek
from delivery.dispatch import parking
from delivery.dispatch.worker import Begin
from delivery.errors import NotOwner
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from subscriber import Reject, Retry
from tests.dispatch import simulated
from tests.unit.by_key import POLICY, Site, batch


def test_the_key_that_fails_waits_and_all_others_go_on() -> None:
    async def story() -> None:
        times: list[tuple[int, float]] = []
        start = trio.current_time()

        def handle(message: Message) -> None:
            if message.number == 101 and trio.current_time() - start < 2.5:
                raise ValueError("not yet")
            times.append((message.number, round(trio.current_time() - start)))

        site = Site([batch(100, *"abca-"), batch(200, *"ab-")], handle)
        await site.run(0.5)
        assert [number for number, _ in times] == [100, 102, 103, 104, 200, 202]
        assert site.position == 202
        assert [one.ids for one in site.ledger.parked] == [(101, 201)]

        site = Site([batch(100, *"abca-"), batch(200, *"ab-")], handle)
        times.clear()
        await site.run(10)
        assert [number for number, _ in times[-2:]] == [101, 201]
        assert times[-2][1] >= 3
        assert site.ledger.parked == ()

    simulated(story)


def test_outcomes_count_for_a_parked_message_as_for_any() -> None:
    async def story() -> None:
        seen: list[tuple[int, float]] = []
        start = trio.current_time()

        def handle(message: Message) -> object:
            seen.append((message.number, round(trio.current_time() - start)))
            if message.number == 100:
                return Reject("never")
            return Retry(after=30) if message.number == 101 and len(seen) < 4 else None

        site = Site([batch(100, *"ab-a")], handle)
        await site.run(60)
        assert [(one.message.number, one.reason) for one in site.letters.kept] == [(100, "rejected")]
        assert seen == [(100, 0), (101, 0), (102, 0), (103, 0), (101, 30)]
        assert site.ledger.parked == ()

    simulated(story)


def test_a_dead_letter_that_cannot_be_stored_keeps_its_key_and_no_other_waiting() -> None:
    async def story() -> None:
        handled: list[int] = []

        def handle(message: Message) -> object:
            if message.number == 100:
                return Reject()
            handled.append(message.number)
            return None

        site = Site([batch(100, *"aab")], handle)
        site.letters.refusals = 10**9
        await site.run(100)
        assert (handled, site.position) == ([102], 102)
        assert [one.ids for one in site.ledger.parked] == [(100, 101)]

    simulated(story)


def test_a_worker_that_takes_over_brings_what_its_state_says_is_parked() -> None:
    async def story() -> None:
        handled: list[int] = []
        parked = (ParkedKey(b"a", (100, 103), failures=1), ParkedKey(None, (104,), failures=1))
        site = Site(
            [batch(100, *"abca-"), batch(200, *"ab-")], lambda message: handled.append(message.number),
            Begin(104, 7, POLICY, parked=parked),
        )  # fmt: skip
        await site.run(5)
        assert sorted(handled) == [100, 103, 104, 200, 201, 202]
        assert [number for number in handled if number in (100, 103, 200)] == [100, 103, 200]
        assert site.ledger.parked == ()

    simulated(story)


def test_with_the_order_of_the_partition_what_is_still_parked_comes_first() -> None:
    async def story() -> None:
        handled: list[int] = []
        parked = (ParkedKey(b"a", (100, 103), failures=1),)
        policy = RetryPolicy(first_seconds=1, jitter=0)
        site = Site(
            [batch(100, *"abca"), batch(200, *"ab")], lambda message: handled.append(message.number),
            Begin(103, 7, policy, parked=parked),
        )  # fmt: skip
        await site.run(5)
        assert handled == [100, 103, 200, 201]

    simulated(story)


def test_what_retention_dropped_is_parked_no_longer() -> None:
    async def story() -> None:
        handled: list[int] = []
        site = Site(
            [batch(200, *"ab")], lambda message: handled.append(message.number),
            Begin(103, 7, POLICY, parked=(ParkedKey(b"a", (100, 103)),)),
        )  # fmt: skip
        await site.run(5)
        assert (handled, site.ledger.parked, site.letters.kept) == ([200, 201], (), []) or handled == [201, 200]
        assert site.ledger.parked == ()

    simulated(story)


def test_when_nothing_more_can_be_parked_the_partition_waits_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MESSAGES_MAX", 4)

    async def story() -> None:
        handled: list[int] = []
        mended = trio.current_time() + 100

        def handle(message: Message) -> None:
            if message.number % 2 and trio.current_time() < mended:
                raise ValueError("odd")
            handled.append(message.number)

        batches = [batch(100 * n, *"abcdefgh") for n in range(1, 6)]
        site = Site(batches, handle)
        await site.run(50)
        assert len(handled) < 20
        assert sum(len(one.ids) for one in site.ledger.parked) == 4
        site = Site(batches, handle)
        handled.clear()
        await site.run(2000)
        assert sorted(set(handled)) == [100 * n + i for n in range(1, 6) for i in range(8)]
        assert site.position == 507
        assert site.ledger.parked == ()

    simulated(story)


@pytest.mark.parametrize("seed", range(20))
def test_failures_and_broken_connections_at_random_keep_each_key_in_order_and_call_nobody_twice(seed: int) -> None:
    async def story() -> None:
        random = Random(seed)
        handled: list[Message] = []

        def handle(message: Message) -> object:
            what = random.random()
            if what < 0.15:
                raise ValueError("no")
            if what < 0.2:
                return Retry(after=random.random())
            handled.append(message)
            return None

        batches = [batch(1000 * n, *(random.choice("abcde-") for _ in range(random.randint(1, 6)))) for n in range(30)]
        site = Site(batches[1:], handle)
        site.process.lose = lambda: random.random() < 0.05
        await site.run(3000)
        numbers = [one.number for one in handled]
        assert len(numbers) == len(set(numbers)) == sum(len(list(peeked(one))) for one in batches[1:])
        for key in (b"a", b"b", b"c", b"d", b"e"):
            mine = [one.number for one in handled if one.key == key]
            assert mine == sorted(mine)
        assert site.ledger.parked == ()

    simulated(story)


def peeked(data: bytes) -> range:
    header = peek(data)
    assert header is not None
    return range(header.count)


@pytest.mark.parametrize("host", ["key", "partition"])
def test_nothing_stands_still_while_host_and_subscriber_know_another_order(host: Literal["key", "partition"]) -> None:
    """An operator has changed it, and the subscriber has not heard of that yet."""

    async def story() -> None:
        seen: list[int] = []

        def handle(message: Message) -> None:
            seen.append(message.number)
            if message.number == 101 and seen.count(101) < 3:
                raise ValueError("not yet")

        begin = Begin(0, 1, RetryPolicy(order=host, first_seconds=1, jitter=0))
        other = RetryPolicy(order="key" if host == "partition" else "partition")
        site = Site([batch(100, *"abca-"), batch(200, *"ab-")], handle, begin, known=other)
        await site.run(10)
        assert (site.position, site.ledger.parked, seen.count(101)) == (202, (), 3)
        firsts = {number: at for at, number in reversed(list(enumerate(seen)))}
        assert sorted(firsts) == [100, 101, 102, 103, 104, 200, 201, 202]
        assert seen.index(201) > len(seen) - 1 - seen[::-1].index(101)

    simulated(story)


def test_a_partition_that_is_lost_in_the_turn_that_cancels_its_worker_is_no_fault() -> None:
    """A group of the loss and the cancellation would come out of the worker as neither."""

    async def story() -> None:
        site = Site([], bool)

        async def read(*_: object) -> None:
            await trio.lowlevel.checkpoint()
            scope.cancel()
            raise NotOwner("another host took over")

        site.partition.read = read  # type: ignore[method-assign, assignment]
        with trio.CancelScope() as scope:
            await site.worker().run(site.process)
        assert scope.cancelled_caught

    simulated(story)
