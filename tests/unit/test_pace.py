"""The limits of a subscription on a host: when pushes may go out, how large, and what is refused as a limit."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st

from delivery.dispatch.gate import Gate
from delivery.dispatch.pace import AHEAD_SECONDS, Pace
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import InvalidRequest
from delivery.filters import KEEP
from delivery.metastore.flow import Flow, changed_flow
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
    ok,
    simulated,
)

RATES = st.floats(0.01, 1e6)
TRIES = st.lists(st.tuples(st.floats(0, 5), st.integers(1, 100_000)), max_size=50)


@given(RATES, st.floats(0.01, 1), TRIES)
def test_no_stretch_of_time_sees_more_than_the_limit_and_one_push(
    rate: float, share: float, tries: list[tuple[float, int]]
) -> None:
    pace, now, sent = Pace(), 0.0, list[tuple[float, int]]()
    pace.limit(Flow(messages_per_second=rate), share)
    for passed, wanted in tries:
        now += passed
        if not pace.delay(now):
            messages = min(wanted, int(pace.largest[0]))
            pace.sent(messages, messages * 100, now)
            sent.append((now, messages))
    allowed = rate * share
    for begin, (since, _) in enumerate(sent):
        total = 0
        for at, messages in sent[begin:]:
            total += messages
            assert total <= allowed * (at - since + AHEAD_SECONDS) + pace.largest[0] + 1e-6 * total


@given(RATES, st.integers(2, 40))
def test_who_waits_as_long_as_told_gets_all_of_the_limit(rate: float, pushes: int) -> None:
    pace, now = Pace(), 100.0
    pace.limit(Flow(bytes_per_second=rate), 1)
    size = int(pace.largest[1])
    for _ in range(pushes):
        now += pace.delay(now) * (1 + 1e-9) + 1e-9
        assert not pace.delay(now)
        pace.sent(1, size, now)
    assert (now - 100) <= pushes * size / rate + 1e-3


def test_without_limits_and_pauses_nothing_waits_and_no_clock_is_asked() -> None:
    pace = Pace()
    pace.limit(Flow(), 0.5)
    pace.pause(None, 7)
    assert (pace.regulates, pace.delay(7)) == (False, 0)
    pace.sent(10**9, 10**12, 7)
    assert pace.delay(7) == 0


def test_a_limit_that_is_changed_counts_from_then_on() -> None:
    pace = Pace()
    pace.limit(Flow(messages_per_second=1), 1)
    pace.sent(1000, 0, 0)
    assert pace.delay(10) > 900
    pace.limit(Flow(messages_per_second=2), 1)
    assert pace.delay(10) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages_per_second": -1}, {"messages_per_second": 0.001}, {"messages_per_second": float("nan")},
        {"bytes_per_second": float("inf")}, {"bytes_per_second": 0.5}, {"messages_per_second": True},
        {"bytes_per_second": "1k"}, {"messages": 3},
        {"window_messages": 1.5}, {"window_bytes": -1}, Flow(bytes_per_second=-5), "fast", None,
    ],
)  # fmt: skip
def test_a_flow_that_cannot_be_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"flow|must be"):
        changed_flow(wrong, Flow())


def test_a_flow_is_changed_as_a_whole_in_part_or_not_at_all() -> None:
    present = Flow(messages_per_second=5, bytes_per_second=1000)
    assert changed_flow(KEEP, present) == present
    assert changed_flow({"messages_per_second": 0}, present) == Flow(bytes_per_second=1000)
    assert changed_flow(Flow(messages_per_second=7), present) == Flow(messages_per_second=7)


def test_a_limited_worker_delivers_evenly_in_order_and_follows_a_new_limit_at_once() -> None:
    async def story() -> None:
        partition = ScriptedPartition([batch_at(100 * i, *"abcdefghij") for i in range(1, 21)])
        heard: list[tuple[float, int]] = []

        async def take(messages: list[Message]) -> Reply:
            await trio.lowlevel.checkpoint()
            heard.extend((trio.current_time(), message.number) for message in messages)
            return ok(messages)

        gate, listener = Gate(), ScriptedListener(take)
        gate.limit(Flow(messages_per_second=10), 1)
        worker = SubscriptionWorker(
            STREAM, partition, begin=Begin(0, 1, gate=gate), wanted=None, config=SMALL, counters=NoCounters(),
            ledger=NotedLedger(), letters=KeptLetters(),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            begun = trio.current_time()
            gate.serve(nursery.start_soon)
            nursery.start_soon(listener.serve)
            nursery.start_soon(worker.run, listener)
            await trio.sleep(10)
            assert 99 <= len(heard) <= 102
            limited = [worker.parts.sender.is_limited]
            assert all(sum(1 for at, _ in heard if at < begun + second) <= 10 * second + 2 for second in range(1, 11))
            gate.limit(Flow(), 1)
            await trio.sleep(0.1)
            limited.append(worker.parts.sender.is_limited)
            assert limited == [True, False], "which is told"
            nursery.cancel_scope.cancel()
        assert [number for _, number in heard] == [100 * i + j for i in range(1, 21) for j in range(10)]

    simulated(story)
