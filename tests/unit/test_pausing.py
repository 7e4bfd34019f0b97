"""Pausing a subscription: what may be asked for, and what the delivery of it then does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec
import pytest
import trio

from delivery.client.pausing import Observe, Pausing
from delivery.dispatch.gate import Gate
from delivery.dispatch.observation import Observation, Stage
from delivery.dispatch.plan import steps
from delivery.dispatch.target import STATUS_OK
from delivery.dispatch.worker import Begin, SubscriptionWorker
from delivery.errors import InvalidRequest, MetadataUnavailable
from delivery.metastore.catalog import Catalog
from delivery.metastore.flow import Pause, check_pause, seconds_paused
from delivery.metastore.managers.records import ParkedKey, check_preferences
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import SubscriptionRecord
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
from tests.unit.test_plan import attached

NOW_MS = 1_800_000_000_000


def test_a_pause_lasts_for_a_time_until_a_time_or_until_a_resume() -> None:
    assert check_pause(None, None, NOW_MS) == Pause(NOW_MS)
    assert check_pause(None, 1.5, NOW_MS) == Pause(NOW_MS, NOW_MS + 1500)
    end = datetime.fromtimestamp(NOW_MS / 1000, UTC) + timedelta(hours=1)
    assert check_pause(end, None, NOW_MS) == Pause(NOW_MS, NOW_MS + 3_600_000)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12, True, "60"])
def test_a_pause_that_has_no_end_in_the_future_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidRequest, match="pause"):
        check_pause(None, seconds, NOW_MS)


def test_a_pause_with_two_ends_and_one_that_ended_before_are_refused() -> None:
    past = datetime.fromtimestamp(NOW_MS / 1000 - 1, UTC)
    with pytest.raises(InvalidRequest, match="future"):
        check_pause(past, None, NOW_MS)
    with pytest.raises(InvalidRequest, match="one of them"):
        check_pause(past, 10, NOW_MS)


def test_a_pause_is_over_when_its_end_has_come() -> None:
    assert seconds_paused(None, NOW_MS) is None
    assert seconds_paused(Pause(NOW_MS), NOW_MS + 10**12) == float("inf")
    assert seconds_paused(Pause(NOW_MS, NOW_MS + 2000), NOW_MS + 500) == 1.5
    assert seconds_paused(Pause(NOW_MS, NOW_MS + 2000), NOW_MS + 2000) is None


def test_a_pause_that_cannot_be_is_no_preference() -> None:
    record = attached("mail").subscription
    assert check_preferences(msgspec.structs.replace(record, pause=Pause(5, 6))) is None
    assert check_preferences(msgspec.structs.replace(record, pause=Pause(5, 4))) is not None


def test_a_delivery_that_is_paused_or_resumed_is_neither_stopped_nor_started() -> None:
    before = attached("mail")
    paused = msgspec.structs.replace(before, subscription=msgspec.structs.replace(before.subscription, pause=Pause(1)))
    for now, then in ((before, paused), (paused, before)):
        todo = steps({("orders", "mail"): now}, {"orders": {"mail": then}})
        assert (todo.stop, todo.start, todo.change) == ((), (), (then,))
    moved = msgspec.structs.replace(paused, listeners=attached("mail", port=2).listeners)
    todo = steps({("orders", "mail"): before}, {"orders": {"mail": moved}})
    assert (todo.stop, todo.start, todo.change) == ((("orders", "mail"),), (moved,), ())


class OneSubscription:
    """What of a catalog a pause takes."""

    def __init__(self) -> None:
        self.record = attached("mail").subscription

    def change_subscription(
        self, queue: str, name: str, change: Callable[[SubscriptionRecord], SubscriptionRecord]
    ) -> SubscriptionRecord:
        self.record = change(self.record)
        return self.record

    def pausing(self, observe: Observe) -> Pausing:
        return Pausing(cast("Catalog", self), observe)


def told(record: SubscriptionRecord, *stages: Stage, heard: bool) -> list[Observation]:
    since = record.pause.since_ms if record.pause and heard else 0
    return [Observation(partition=at, now_ms=1, stage=stage, paused_ms=since) for at, stage in enumerate(stages)]


def test_a_pause_is_given_back_when_all_hosts_that_deliver_hold_to_it() -> None:
    catalog, answers = OneSubscription(), [(False, False), (True, False), (False, True), (True, True), (False, False)]

    def observe(record: SubscriptionRecord) -> list[Observation]:
        first, second = answers.pop(0)
        served = told(record, "delivering", heard=first) + told(record, "starting", heard=second)
        return served + told(record, "no_owner", "no_listener", "pulled", "host_unreachable", heard=False)

    found = catalog.pausing(observe).pause("orders", "mail", None, None)
    assert found.pause is not None
    assert found == catalog.record
    assert answers == [(False, False)]


@pytest.mark.parametrize("seconds", [None, 0.02])
def test_a_host_that_hears_of_no_pause_is_not_waited_for_for_long(
    monkeypatch: pytest.MonkeyPatch, seconds: float | None
) -> None:
    if seconds is None:
        monkeypatch.setattr("delivery.client.pausing.HEARD_SECONDS", 0.02)
    catalog = OneSubscription()
    pausing = catalog.pausing(lambda record: told(record, "delivering", heard=False))
    found = pausing.pause("orders", "mail", None, seconds)
    assert found.pause is not None


def test_a_pause_counts_when_nobody_can_tell_who_holds_to_it() -> None:
    def observe(_: SubscriptionRecord) -> list[Observation]:
        raise MetadataUnavailable("ZooKeeper is gone")

    catalog = OneSubscription()
    catalog.pausing(observe).pause("orders", "mail", None, 60)
    assert catalog.record.pause is not None


class Story:
    """A worker behind a gate, and when its listener was called with what."""

    def __init__(self, begin: Begin, *batches: bytes) -> None:
        self.gate = Gate()
        self.partition = ScriptedPartition(list(batches))
        self.calls: dict[int, float] = {}
        self.pushes: list[float] = []
        self.listener = ScriptedListener(self.take)
        self.worker = SubscriptionWorker(
            STREAM, self.partition, begin=msgspec.structs.replace(begin, gate=self.gate), wanted=None, config=SMALL,
            counters=NoCounters(), ledger=NotedLedger(), letters=KeptLetters(),
        )  # fmt: skip

    async def take(self, messages: list[Message]) -> Reply:
        self.pushes.append(trio.current_time())
        await trio.sleep(1)
        for message in messages:
            self.calls[message.number] = trio.current_time()
        return ok(messages) if messages else Reply(STATUS_OK, 0)

    async def begin(self, nursery: trio.Nursery) -> None:
        self.gate.serve(nursery.start_soon)
        nursery.start_soon(self.listener.serve)
        nursery.start_soon(self.worker.run, self.listener)


def test_in_a_pause_what_is_out_is_settled_and_nothing_follows_until_its_end() -> None:
    async def story() -> None:
        one = Story(Begin(0, 1), batch_at(100, "a"))
        async with trio.open_nursery() as nursery:
            await one.begin(nursery)
            await trio.sleep(0.5)
            one.gate.pause(60)
            one.partition.add(batch_at(200, "b"))
            await trio.sleep(30)
            assert (one.worker.position, one.worker.unacknowledged) == (100, 0)
            await trio.sleep(60)
            assert one.worker.position == 200
            assert one.calls[200] >= 60.5
            nursery.cancel_scope.cancel()

    simulated(story)


def test_a_resume_ends_a_pause_without_an_end_at_once() -> None:
    async def story() -> None:
        one = Story(Begin(0, 1), batch_at(100, "a"))
        one.gate.pause(float("inf"))
        async with trio.open_nursery() as nursery:
            await one.begin(nursery)
            await trio.sleep(10**6)
            assert one.calls == {}
            one.gate.pause(None)
            await trio.sleep(1.5)
            assert one.worker.position == 100
            nursery.cancel_scope.cancel()

    simulated(story)


def test_a_paused_worker_drains_without_sending_what_it_holds() -> None:
    async def story() -> None:
        one = Story(Begin(0, 1), batch_at(100, "a"))
        one.gate.pause(float("inf"))
        async with trio.open_nursery() as nursery:
            one.gate.serve(nursery.start_soon)
            nursery.start_soon(one.worker.run, one.listener)
            await trio.sleep(1)
            one.worker.drain()
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert one.worker.position == 0

    simulated(story)


def test_what_is_parked_waits_for_the_end_of_a_pause_too() -> None:
    async def story() -> None:
        parked = ParkedKey(b"k", (100,), due_ms=0)
        policy = RetryPolicy(order="key", first_seconds=1, jitter=0)
        one = Story(Begin(100, 1, policy, parked=(parked,)), batch_at(100, "a"))
        one.gate.pause(60)
        async with trio.open_nursery() as nursery:
            await one.begin(nursery)
            await trio.sleep(50)
            assert one.pushes == []
            await trio.sleep(20)
            assert len(one.pushes) == 1
            nursery.cancel_scope.cancel()

    simulated(story)
