"""The window that follows the time a subscriber takes."""

from __future__ import annotations

from collections import deque

import pytest
import trio
from hypothesis import given, strategies as st

from delivery.config import HostConfig
from delivery.dispatch.adapting import FIRST_MESSAGES, TARGET_SECONDS, Adapting
from delivery.dispatch.gate import Gate
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.metastore.flow import Flow
from delivery.model import Message
from tests.dispatch import (
    STREAM,
    KeptLetters,
    NoCounters,
    NotedLedger,
    Reply,
    ScriptedListener,
    ScriptedPartition,
    batch_at,
    ok,
    simulated,
)

MAX = 50_000
TIMES = st.floats(0, 1e6)


def worked_off(
    seconds_each: float, answers: int, push_messages: int = 4000, adapting: Adapting | None = None
) -> Adapting:
    """A window after so many answers of a subscriber that takes so long with each message, and always has work."""
    adapting = adapting or Adapting(MAX)
    now, free, out, sent = 0.0, 0.0, deque[tuple[int, float, float]](), 0
    for _ in range(answers):
        while not out or sent < adapting.messages:
            messages = min(push_messages, max(1, adapting.messages - sent))
            free = max(free, now) + messages * seconds_each + 0.0002
            out.append((messages, now, free))
            sent += messages
        messages, at, now = out.popleft()
        sent -= messages
        adapting.answered(messages, at, now)
    return adapting


@given(st.integers(1, 10**7), st.lists(st.tuples(st.integers(1, 10**6), TIMES, TIMES), max_size=50))
def test_it_is_never_below_one_message_or_above_what_the_host_allows(
    allowed: int, answers: list[tuple[int, float, float]]
) -> None:
    adapting, now = Adapting(allowed), 0.0
    for messages, passed, took in answers:
        now += passed
        adapting.answered(messages, now, now + took)
        now += took
        assert 1 <= adapting.messages <= allowed


@given(st.floats(0.0005, 20))
def test_it_becomes_what_is_done_in_the_time_aimed_at(seconds_each: float) -> None:
    found = worked_off(seconds_each, 40).messages
    wanted = max(1.0, TARGET_SECONDS / seconds_each)
    assert wanted / 2 - 1 <= found <= wanted * 1.5


@given(st.floats(0, 0.000_01), st.integers(500, 4000))
def test_a_quick_subscriber_soon_has_all_that_the_host_allows(seconds_each: float, push_messages: int) -> None:
    assert worked_off(seconds_each, 20, push_messages).messages == MAX


def test_it_shrinks_when_callbacks_slow_down_and_grows_again() -> None:
    adapting = worked_off(0.000_001, 20)
    assert worked_off(0.1, 30, adapting=adapting).messages <= 15
    assert worked_off(0.000_001, 60, adapting=adapting).messages == MAX


@given(st.floats(0.5, 60), st.integers(2, 256))
def test_who_works_on_several_at_the_same_time_gets_enough_for_all_and_in_small_pushes(
    seconds_each: float, abreast: int
) -> None:
    adapting, now = Adapting(MAX), 0.0
    for _ in range(20):
        adapting.answered(1, now, now + seconds_each, abreast)
        now += seconds_each
    assert 2 * abreast <= adapting.messages <= 2 * abreast + 2 * TARGET_SECONDS / seconds_each
    assert 1 <= adapting.largest <= max(1, adapting.messages // 4)
    adapting.answered(1, now, now + seconds_each)
    assert adapting.largest == adapting.messages <= 1 + 2 * TARGET_SECONDS / seconds_each


def test_before_the_first_answer_it_is_small() -> None:
    assert (Adapting(MAX).messages, Adapting(7).messages) == (FIRST_MESSAGES, 7)


@pytest.mark.parametrize(("flow", "most"), [(Flow(), 15), (Flow(window_messages=40), 40), (Flow(window_bytes=500), 20)])
def test_a_slow_listener_has_little_out_unless_its_subscription_says_how_much(flow: Flow, most: int) -> None:
    async def story() -> None:
        seen: list[int] = []

        async def take(messages: list[Message]) -> Reply:
            for message in messages:
                if message.number > 2000:
                    seen.append(worker.unacknowledged)
                await trio.sleep(0.1)
            return ok(messages)

        partition = ScriptedPartition([batch_at(1000 * n, *["t"] * 200) for n in range(1, 6)])
        listener, gate = ScriptedListener(take), Gate()
        gate.limit(flow, 1)
        worker = SubscriptionWorker(
            STREAM, partition, begin=Begin(0, 1, gate=gate), wanted=None, config=HostConfig(), counters=NoCounters(),
            ledger=NotedLedger(), letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            nursery.start_soon(worker.run, listener)
            await trio.sleep(200)
            nursery.cancel_scope.cancel()
        assert worker.position == 5199
        assert max(seen) <= most
        assert max(seen) >= most / 3

    simulated(story)
