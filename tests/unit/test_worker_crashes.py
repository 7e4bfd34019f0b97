"""A SubscriptionWorker whose subscriber goes away: the message that crashes it is found, and no innocent one pays."""

from __future__ import annotations

import pytest
import trio

from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import HootError, SubscriberUnreachable
from delivery.metastore.managers.records import Attempts
from delivery.metastore.policy import RetryPolicy
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
    ok,
    simulated,
)

CRASHES = RetryPolicy(crashes_max=2)


class Fragile:
    """Goes away at certain messages, in the middle of what it was given."""

    def __init__(self, *guilty: int) -> None:
        self.guilty = guilty
        self.handled: list[int] = []
        self.lists: list[list[int]] = []

    async def take(self, messages: list[Message]) -> Reply | HootError:
        await trio.sleep(0.01)
        self.lists.append([message.number for message in messages])
        for message in messages:
            if message.number in self.guilty:
                return SubscriberUnreachable("the connection broke")
            self.handled.append(message.number)
        return ok(messages)


def test_the_message_that_crashes_its_subscriber_is_found_and_given_up_and_no_other() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, *"abcdef"), batch_at(200, *"ab")])
        fragile, letters = Fragile(103), KeptLetters()
        await deliver(partition, ScriptedListener(fragile.take), until=201, policy=CRASHES, letters=letters)
        assert [(one.message.number, one.reason) for one in letters.kept] == [(103, "its subscriber went away 2 times")]
        assert set(fragile.handled) == {100, 101, 102, 104, 105, 200, 201}
        assert fragile.lists.count([103]) == 2, "alone, as often as it may"
        assert len(fragile.lists[0]) > 1

    simulated(story)


def test_of_several_each_is_found() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100, *"abcdef"), batch_at(200, *"abcdef")])
        fragile, letters = Fragile(100, 103, 205), KeptLetters()
        await deliver(partition, ScriptedListener(fragile.take), until=205, policy=CRASHES, letters=letters)
        assert [one.message.number for one in letters.kept] == [100, 103, 205]

    simulated(story)


@pytest.mark.parametrize("behind", ["ab", "a"])
def test_where_a_filter_leaves_much_out_it_is_still_the_guilty_message_that_is_given_up(behind: str) -> None:
    """What was out alone is a message, and not the end of what nobody wanted behind it."""

    async def story() -> None:
        batches = [batch_at(100, *"aaba" + behind), *(batch_at(100 * n, "b") for n in range(2, 9)), batch_at(900, "a")]
        fragile, letters = Fragile(103), KeptLetters()
        await deliver(
            ScriptedPartition(batches), ScriptedListener(fragile.take), until=900, topics=("a",), policy=CRASHES,
            letters=letters,
        )  # fmt: skip
        assert [one.message.number for one in letters.kept] == [103]
        assert set(fragile.handled) == {100, 101, 104, 900}

    simulated(story)


@pytest.mark.parametrize("refused", [1, 20])
@pytest.mark.parametrize("crashes_max", [1, 2])
def test_the_last_wanted_message_before_a_long_refused_stretch_is_found(refused: int, crashes_max: int) -> None:
    async def story() -> None:
        batches = [batch_at(100, *"aa"), *(batch_at(200 + n, "b") for n in range(refused)), batch_at(900, *"aa")]
        fragile, letters = Fragile(101), KeptLetters()
        await deliver(
            ScriptedPartition(batches), ScriptedListener(fragile.take), until=901, topics=("a",), letters=letters,
            policy=RetryPolicy(crashes_max=crashes_max),
        )  # fmt: skip
        assert [one.message.number for one in letters.kept] == [101]
        assert set(fragile.handled) == {100, 900, 901}

    simulated(story)


def test_connections_that_break_between_progress_make_nobody_a_suspect() -> None:
    async def story() -> None:
        breaks = 0

        async def take(messages: list[Message]) -> Reply | HootError:
            nonlocal breaks
            breaks += 1
            return SubscriberUnreachable("reset") if breaks % 3 else ok(messages)

        letters = KeptLetters()
        partition = ScriptedPartition([batch_at(100 * n, *"abc") for n in range(1, 30)])
        await deliver(partition, ScriptedListener(take), until=2902, policy=RetryPolicy(crashes_max=1), letters=letters)
        assert letters.kept == []

    simulated(story)


def test_without_a_limit_a_message_that_crashes_is_never_given_up() -> None:
    async def story() -> None:
        fragile, letters, ledger = Fragile(101), KeptLetters(), NotedLedger()
        listener = ScriptedListener(fragile.take)
        worker = SubscriptionWorker(
            STREAM, ScriptedPartition([batch_at(100, *"abc")]), begin=Begin(0, 1), wanted=None, config=SMALL,
            counters=NoCounters(), ledger=ledger, letters=letters,
        )  # fmt: skip
        with trio.move_on_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listener.serve)
                nursery.start_soon(worker.run, listener)
                while fragile.lists.count([101]) < 10:  # noqa: ASYNC110
                    await trio.sleep(0.1)
                nursery.cancel_scope.cancel()
        assert (letters.kept, worker.position) == ([], 100)

    simulated(story)


def test_what_was_known_when_the_subscriber_was_started_again_counts() -> None:
    """Each restart of a subscriber makes a new worker; the state is what it knows."""

    async def story() -> None:
        partition, letters, fragile = ScriptedPartition([batch_at(100, *"abcd")]), KeptLetters(), Fragile(102)
        position, failing, workers = 0, None, 0
        while position < 103:
            workers += 1
            assert workers < 30
            ledger, listener = NotedLedger(), ScriptedListener(fragile.take)
            worker = SubscriptionWorker(
                STREAM, partition, begin=Begin(position, workers, CRASHES, failing), wanted=None, config=SMALL,
                counters=NoCounters(), ledger=ledger, letters=letters,
            )  # fmt: skip
            crashes = sum(102 in one for one in fragile.lists)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listener.serve)
                nursery.start_soon(worker.run, listener)
                while worker.position < 103 and sum(102 in one for one in fragile.lists) == crashes:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
            position = worker.position
            failing = ledger.failing[-1] if ledger.failing else failing
        assert [one.message.number for one in letters.kept] == [102]
        assert isinstance(failing, Attempts | None)

    simulated(story)
