"""A SubscriptionWorker whose listener does not handle everything: what comes again, and when."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from delivery.dispatch.retry import Kind
from delivery.dispatch.target import STATUS_FAILED
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import HootError, ProtocolError
from delivery.metastore.managers.records import Attempts
from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from tests.dispatch import (
    SMALL,
    STREAM,
    KeptLetters,
    NoCounters,
    NotedLedger,
    Refusal,
    Reply,
    ScriptedListener,
    ScriptedPartition,
    batch_at,
    deliver,
    failed_at,
    ok,
    simulated,
)


def test_a_message_that_fails_is_delivered_again_after_the_delay_and_order_holds() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100 * i, *"abc") for i in range(1, 10)])
        failures = [301, 302, 700]
        times: dict[int, list[float]] = {}

        async def take(messages: list[Message]) -> Reply:
            for message in messages:
                times.setdefault(message.number, []).append(trio.current_time())
                if message.number in failures:
                    failures.remove(message.number)
                    return failed_at(message.number)
                listener.delivered.append(message.number)
            return ok(messages)

        listener = ScriptedListener(take)
        await deliver(partition, listener, until=902)
        first_time = list(dict.fromkeys(listener.delivered))
        assert first_time == [100 * i + j for i in range(1, 10) for j in range(3)]
        assert times[301][1] - times[301][0] >= 1.0

    simulated(story)


def test_pauses_grow_with_each_failure_of_the_same_message_and_begin_anew_with_the_next() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, *"abc")])
        times: dict[int, list[float]] = {}

        async def take(messages: list[Message]) -> Reply:
            for message in messages:
                tries = times.setdefault(message.number, [])
                tries.append(trio.current_time())
                if message.number < 102 and len(tries) < 4:
                    return failed_at(message.number)
            return ok(messages)

        await deliver(partition, ScriptedListener(take), until=102)
        for number in (100, 101):
            assert [round(later - earlier, 3) for earlier, later in pairwise(times[number])] == [1.0, 2.0, 4.0]

    simulated(story)


def test_a_listener_that_says_when_is_asked_again_then_and_not_earlier() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, "a")])
        times: list[float] = []

        async def take(messages: list[Message]) -> Reply:
            times.append(trio.current_time())
            return failed_at(100, kind=Kind.RETRY, afterMs=90_500) if len(times) < 3 else ok(messages)

        await deliver(partition, ScriptedListener(take), until=100)
        assert [round(later - earlier, 3) for earlier, later in pairwise(times)] == [90.5, 90.5]

    simulated(story)


def test_a_worker_that_waits_for_a_failed_message_ends_at_once_when_it_is_drained() -> None:
    async def story() -> None:
        async def take(messages: list[Message]) -> Reply:
            return failed_at(100, kind=Kind.RETRY, afterMs=600_000)

        listener, ledger = ScriptedListener(take), NotedLedger()
        worker = SubscriptionWorker(
            STREAM, ScriptedPartition([batch_at(100, "a")]), begin=Begin(0, 1), wanted=None, config=SMALL,
            counters=NoCounters(), ledger=ledger, letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            nursery.start_soon(worker.run, listener)
            await trio.sleep(5)
            assert ledger.failing == [Attempts(99, 1, "ValueError: no", "ValueError: no")]
            worker.drain()
            with trio.fail_after(1):
                while nursery.child_tasks and len(nursery.child_tasks) > 1:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    simulated(story)


def test_a_push_that_the_listener_refuses_is_sent_again_after_the_delay_and_not_at_once() -> None:
    """Its connection is still there, so that without a delay both would be kept busy for nothing."""

    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, *"abc")])
        times: list[float] = []

        async def take(messages: list[Message]) -> Reply | HootError:
            times.append(trio.current_time())
            return ProtocolError("the peer refused push: out of memory") if len(times) < 4 else ok(messages)

        listener = ScriptedListener(take)
        await deliver(partition, listener, until=102)
        assert [round(later - earlier, 3) for earlier, later in pairwise(times)] == [1.0, 2.0, 4.0]

    simulated(story)


# -- giving up


def test_a_message_is_given_up_after_its_last_delivery_stored_first_and_what_follows_goes_on() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, *"abc"), batch_at(200, *"ab")])
        letters, times, moves = KeptLetters(), [], []

        async def take(messages: list[Message]) -> Reply:
            for message in messages:
                if message.number == 101:
                    times.append(trio.current_time())
                    return failed_at(101, error=f"failure {len(times)}")
                moves.append((message.number, len(letters.kept)))
            return ok(messages)

        policy = RetryPolicy(first_seconds=1, jitter=0, deliveries_max=3)
        positions = await deliver(partition, ScriptedListener(take), until=201, policy=policy, letters=letters)
        assert [(one.message.number, one.reason) for one in letters.kept] == [(101, "failed 3 times")]
        assert letters.kept[0].attempts == Attempts(100, 3, "failure 1", "failure 3")
        assert letters.kept[0].message.body == b"101"
        assert moves == [(100, 0), (102, 1), (200, 1), (201, 1)]
        assert positions == [100, 101, 201]
        assert [later - earlier for earlier, later in pairwise(times)] == [1.0, 2.0]

    simulated(story)


def test_the_position_waits_until_the_dead_letter_is_stored() -> None:
    async def story() -> None:
        letters = KeptLetters()
        letters.refusals = 5
        handled: list[tuple[int, int]] = []

        async def take(messages: list[Message]) -> Reply:
            if messages[0].number == 100:
                return failed_at(100, kind=Kind.REJECTED)
            handled.extend((message.number, letters.refusals) for message in messages)
            return ok(messages)

        positions = await deliver(
            ScriptedPartition([batch_at(100, *"ab")]), ScriptedListener(take), until=101, letters=letters
        )
        assert (positions, handled) == ([99, 100, 101], [(101, 0)])

    simulated(story)


def test_without_dead_letters_what_is_given_up_is_dropped() -> None:
    async def story() -> None:
        letters = KeptLetters()

        async def take(messages: list[Message]) -> Reply:
            return failed_at(100, kind=Kind.REJECTED) if messages[0].number == 100 else ok(messages)

        policy = RetryPolicy(dead_letters=False)
        await deliver(
            ScriptedPartition([batch_at(100, *"ab")]), ScriptedListener(take), until=101, policy=policy, letters=letters
        )
        assert letters.kept == []

    simulated(story)


@pytest.mark.parametrize("topics", [(), ("a",)], ids=["all", "filtered"])
def test_of_a_list_that_is_rejected_only_the_guilty_message_becomes_a_dead_letter(topics: tuple[str, ...]) -> None:
    """A listener that takes lists says of the whole list that it failed; then it gets them one by one."""

    async def story() -> None:
        batches = [batch_at(100, *"abaaba"), batch_at(200, *"ab"), batch_at(300, *"aa")]
        wanted = [
            number
            for number in (100, 101, 102, 103, 104, 105, 200, 201, 300, 301)
            if not topics or number not in (101, 104, 201)
        ]
        letters, lists, together = KeptLetters(), [], []

        async def take(messages: list[Message]) -> Reply:
            numbers = [message.number for message in messages]
            lists.append(numbers)
            if 103 in numbers:
                return Reply(STATUS_FAILED, numbers[0] - 1, [Refusal(numbers[0], numbers[-1], Kind.REJECTED)])
            together.extend(numbers)
            return ok(messages)

        await deliver(ScriptedPartition(batches), ScriptedListener(take), until=301, topics=topics, letters=letters)
        assert [one.message.number for one in letters.kept] == [103]
        assert sorted({*together, 103}) == wanted
        assert together == sorted(together)
        assert len(lists[0]) > 1
        assert [103] in lists

    simulated(story)


def test_a_message_that_retention_dropped_meanwhile_keeps_nobody_waiting() -> None:
    async def story() -> None:
        partition, letters = ScriptedPartition([batch_at(100, "a"), batch_at(200, "a")]), KeptLetters()

        async def take(messages: list[Message]) -> Reply:
            if messages[0].number == 100:
                del partition.batches[0]
                return failed_at(100, kind=Kind.REJECTED)
            return ok(messages)

        await deliver(partition, ScriptedListener(take), until=200, letters=letters)
        assert letters.kept == []

    simulated(story)
