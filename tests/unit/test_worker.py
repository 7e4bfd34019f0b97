"""A SubscriptionWorker between a scripted partition and a scripted listener, on a virtual clock."""

from __future__ import annotations

from random import Random

import pytest
import trio
import trio.testing

from delivery.batch import open_batch
from delivery.dispatch.buffer import Buffer, Piece
from delivery.dispatch.target import STATUS_UNKNOWN
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import HootError, NotOwner, SubscriberUnreachable
from delivery.filters import filter_of
from delivery.model import Message
from tests.dispatch import (
    SMALL,
    STREAM,
    KeptLetters,
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


def test_everything_arrives_once_and_in_order_and_the_position_ends_at_the_last_id() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100 * i, *"abc") for i in range(1, 50)])

        async def take(messages: list[Message]) -> Reply:
            listener.delivered += [message.number for message in messages]
            return ok(messages)

        listener = ScriptedListener(take)
        positions = await deliver(partition, listener, until=4902)
        assert listener.delivered == [100 * i + j for i in range(1, 50) for j in range(3)]
        assert positions == sorted(positions)
        assert positions[-1] == 4902

    simulated(story)


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "in the store"])
@pytest.mark.parametrize("topics", [(), ("a",)], ids=["all", "filtered"])
def test_a_worker_with_nothing_new_sleeps_and_wakes_for_a_new_batch(in_memory: bool, topics: tuple[str, ...]) -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, "a")])
        partition.in_memory = in_memory

        async def take(messages: list[Message]) -> Reply:
            listener.delivered += [message.number for message in messages]
            return ok(messages)

        async def publish_after_an_hour() -> None:
            await trio.sleep(3600)
            assert partition.reads_that_found_nothing == 1
            partition.add(batch_at(200, "a"))

        listener = ScriptedListener(take)
        worker = SubscriptionWorker(
            STREAM, partition, begin=Begin(0, 1), wanted=filter_of(topics, None), config=SMALL, counters=NoCounters(),
            ledger=NotedLedger(), letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            nursery.start_soon(worker.run, listener)
            await publish_after_an_hour()
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert listener.delivered == [100, 200]

    simulated(story)


def test_a_listener_that_never_answers_holds_a_bounded_window_and_the_position_stays() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100 * i, *"abcde") for i in range(1, 200)])
        pushed: list[int] = []

        async def hang(messages: list[Message]) -> Reply:
            pushed.append(len(messages))
            await trio.sleep_forever()
            raise AssertionError

        listener = ScriptedListener(hang)
        worker = SubscriptionWorker(
            STREAM, partition, begin=Begin(0, 1), wanted=None, config=SMALL, counters=NoCounters(),
            ledger=NotedLedger(lambda position: pytest.fail("nothing was acknowledged")), letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            nursery.start_soon(worker.run, listener)
            await trio.sleep(60)
            assert 0 < worker.unacknowledged <= SMALL.window_messages
            nursery.cancel_scope.cancel()
        assert worker.position == 0

    simulated(story)


def test_a_partition_that_is_lost_ends_the_worker_with_its_error() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, "a")])

        async def take(messages: list[Message]) -> Reply:
            partition.lose(NotOwner("taken over", address="127.0.0.1:1"))
            return ok(messages)

        listener = ScriptedListener(take)
        worker = SubscriptionWorker(
            STREAM, partition, begin=Begin(0, 1), wanted=None, config=SMALL, counters=NoCounters(),
            ledger=NotedLedger(), letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            with pytest.raises(NotOwner), trio.fail_after(60):
                await worker.run(listener)
            nursery.cancel_scope.cancel()

    simulated(story)


def test_a_listener_that_refuses_ends_the_worker() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, "a")])

        async def refuse(messages: list[Message]) -> Reply:
            return Reply(STATUS_UNKNOWN, 0)

        listener = ScriptedListener(refuse)
        worker = SubscriptionWorker(
            STREAM, partition, begin=Begin(0, 1), wanted=None, config=SMALL, counters=NoCounters(),
            ledger=NotedLedger(), letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            with trio.fail_after(5):
                await worker.run(listener)
            nursery.cancel_scope.cancel()

    simulated(story)


def test_drain_waits_for_the_answers_to_what_is_out_and_then_ends() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100 * i, "a") for i in range(1, 100)])

        async def slow(messages: list[Message]) -> Reply:
            await trio.sleep(1)
            listener.delivered += [message.number for message in messages]
            return ok(messages)

        listener = ScriptedListener(slow)
        worker = SubscriptionWorker(
            STREAM, partition, begin=Begin(0, 1), wanted=None, config=SMALL, counters=NoCounters(),
            ledger=NotedLedger(), letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)

            async def drain_soon() -> None:
                await trio.sleep(2.5)
                worker.drain()

            nursery.start_soon(drain_soon)
            await worker.run(listener)
            nursery.cancel_scope.cancel()
        assert worker.unacknowledged == 0
        assert worker.position == listener.delivered[-1]

    simulated(story)


@pytest.mark.parametrize("seed", range(40))
def test_failures_and_broken_connections_at_random_lose_nothing_and_keep_the_order(seed: int) -> None:
    """Duplicates may come, but the first deliveries are every id in order, and a position is never ahead of them."""

    async def story() -> None:
        random = Random(seed)
        batches = [batch_at(1000 * i, *"ab" * random.randint(1, 4)) for i in range(1, 40)]
        everything = [m.number for b in batches for m in open_batch(b).messages("orders")]
        partition = ScriptedPartition(batches[:10])

        async def publish() -> None:
            for batch in batches[10:]:
                await trio.sleep(random.random())
                partition.in_memory = random.random() < 0.7
                partition.add(batch)

        async def take(messages: list[Message]) -> Reply | HootError:
            await trio.sleep(random.random())
            if random.random() < 0.1:
                return SubscriberUnreachable("reset")
            for message in messages:
                if random.random() < 0.03:
                    return failed_at(message.number)
                listener.delivered.append(message.number)
            return SubscriberUnreachable("the answer was lost") if random.random() < 0.1 else ok(messages)

        listener = ScriptedListener(take)
        listener.push_seconds = random.random()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            positions = await deliver(partition, listener, until=everything[-1])
        assert list(dict.fromkeys(listener.delivered)) == everything
        assert positions == sorted(positions)

    simulated(story)


def test_a_full_buffer_makes_the_scanner_wait() -> None:
    async def story() -> None:
        buffer = Buffer(messages_max=10, bytes_max=1000, on_filled=lambda: None)
        await buffer.put(Piece(1, 10, b"x"))
        with trio.move_on_after(5) as waiting:
            await buffer.put(Piece(2, 1, b"x"))
        assert waiting.cancelled_caught
        assert buffer.take().last_id == 1
        with trio.fail_after(1):
            await buffer.put(Piece(3, 1, b"x" * 2000))
        with trio.move_on_after(5) as waiting:
            await buffer.put(Piece(4, 1, b"x"))
        assert waiting.cancelled_caught

    simulated(story)
