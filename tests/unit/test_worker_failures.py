"""A SubscriptionWorker whose listener does not handle everything: what comes again, and when."""

from __future__ import annotations

from itertools import pairwise

import trio

from delivery.dispatch.retry import Kind
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import HootError, ProtocolError
from delivery.metastore.managers.records import Attempts
from delivery.model import Message
from tests.dispatch import (
    SMALL,
    STREAM,
    NoCounters,
    NotedLedger,
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
            STREAM, ScriptedPartition([batch_at(100, "a")]), begin=Begin(0, 1), topics=frozenset(), config=SMALL,
            counters=NoCounters(), ledger=ledger,
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
