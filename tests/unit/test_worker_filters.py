"""A worker whose filter refuses much: nothing stands still, and nothing grows."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec
import pytest
import trio
import trio.testing

from delivery.batch import Batch
from delivery.batch.select import Refuses
from delivery.dispatch.buffer import Buffer, Piece
from delivery.dispatch.scanner import MessageScanner
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.filters import Filter, filter_of
from delivery.model import Message
from delivery.storage.base import Chunk
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
    ok,
    simulated,
)


def test_a_topic_filter_leaves_its_messages_and_still_moves_the_position_past_the_others() -> None:
    async def story() -> None:
        batches = [batch_at(100, "JFK", "LGA"), batch_at(200, "LGA"), batch_at(300, "JFK"), batch_at(400, "LGA")]
        partition = ScriptedPartition(batches)

        async def take(messages: list[Message]) -> Reply:
            listener.delivered += [message.number for message in messages]
            return ok(messages)

        listener = ScriptedListener(take)
        await deliver(partition, listener, until=400, topics=("JFK",))
        assert listener.delivered == [100, 300]

    simulated(story)


def test_a_filter_that_takes_nothing_for_long_needs_no_listener_and_moves_the_position_to_the_end() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100 * i, "LGA", "EWR") for i in range(1, 400)])

        async def refuse(messages: list[Message]) -> Reply:
            raise AssertionError("nothing was to be pushed")

        positions = await deliver(partition, ScriptedListener(refuse), until=39_901, topics=("JFK*",))
        assert positions == sorted(positions)
        assert positions[-1] == 39_901

    simulated(story)


def test_what_a_filter_refuses_takes_no_room_behind_a_push_that_is_not_answered() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, "JFK"), *(batch_at(100 * i, "LGA") for i in range(2, 400))])
        answer = trio.Event()
        positions: list[int] = []

        async def take_late(messages: list[Message]) -> Reply:
            await answer.wait()
            return ok(messages)

        listener = ScriptedListener(take_late)
        worker = SubscriptionWorker(
            STREAM, partition, begin=Begin(0, 1), wanted=filter_of(("JFK",), None),
            config=msgspec.structs.replace(SMALL, window_messages=1), counters=NoCounters(),
            ledger=NotedLedger(positions.append), letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            nursery.start_soon(worker.run, listener)
            await trio.testing.wait_all_tasks_blocked()
            assert (worker.unacknowledged, positions) == (1, [])
            assert len(worker._window._sent) == 1
            answer.set()
            await trio.testing.wait_all_tasks_blocked()
            assert positions == [39_900]
            nursery.cancel_scope.cancel()

    simulated(story)


@pytest.mark.parametrize(("rule", "inside"), [("topic = 'JFK'", False), ("body = '100'", True)])
def test_messages_are_evaluated_one_by_one_beside_the_loop_and_topics_in_it(
    rule: str, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluating a chunk may take tens of milliseconds, in which other subscriptions are to go on."""
    threads: list[bool] = []
    choose = Filter.choose

    def noting(self: Filter, batch: Batch) -> Sequence[int]:
        threads.append(threading.current_thread() is not threading.main_thread())
        return choose(self, batch)

    monkeypatch.setattr(Filter, "choose", noting)
    wanted = filter_of((), rule)
    pieces: list[Piece] = []

    async def story() -> None:
        filled = trio.Event()
        buffer = Buffer(10, 1000, filled.set)
        scanner = MessageScanner(ScriptedPartition([batch_at(100, "JFK", "LGA")]), wanted, 1000)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(scanner.run, buffer, 0)
                await filled.wait()
                nursery.cancel_scope.cancel()
        pieces.append(buffer.take())

    trio.run(story)
    assert threads == [inside]
    assert [(piece.last_id, piece.messages) for piece in pieces] == [(101, 1)]


class Measured(ScriptedPartition):
    """Notes how many batches each read gave."""

    def __init__(self, batches: list[bytes]) -> None:
        super().__init__(batches)
        self.given: list[int] = []

    async def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        found = await super().read(after, bytes_max, refuses)
        self.given += [] if found is None else [len(found.headers)]
        return found


def test_more_is_read_at_once_while_topics_leave_little_of_it() -> None:
    """Each read takes a hop to a thread, however little comes of it; and nobody holds what was refused."""
    topics = ["JFK"] * 39 + ["LGA"] * 39
    source = Measured([batch_at(100_000 + 100 * n, *[topic] * 40) for n, topic in enumerate(topics)])
    scanner = MessageScanner(source, filter_of(("LGA",), None), 2 * len(source.batches[0]))

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scanner.run, Buffer(10_000, 10**6, lambda: None), 0)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(story)
    assert source.given[:5] == [2, 16, 16, 16, 2]
    assert sum(source.given) == len(topics)


def test_a_buffer_keeps_one_more_piece_however_much_is_refused_behind_one() -> None:
    buffer = Buffer(10, 100, lambda: None)
    buffer.add(Piece(1, 0, b""))
    buffer.add(Piece(2, 0, b""))
    buffer.add(Piece(3, 2, b"ab"))
    for last_id in range(4, 1000):
        buffer.add(Piece(last_id, 0, b""))
    assert (buffer.messages, buffer.is_full) == (2, False)
    assert [buffer.take() for _ in range(3)] == [Piece(2, 0, b""), Piece(3, 2, b"ab"), Piece(999, 0, b"")]
    assert buffer.first() is None
