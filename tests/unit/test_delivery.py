"""The delivery of a subscription: where it begins in a partition, and what it does while others own that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import trio

from delivery.config import HostConfig
from delivery.dispatch.checkpoints import CheckpointKeeper, CheckpointKey
from delivery.dispatch.delivery import Delivery, Tools
from delivery.dispatch.plan import Attached
from delivery.metastore.records import Checkpoint, ListenerRecord, SubscriptionRecord
from tests.dispatch import NoCounters, ScriptedPartition
from tests.hosting import eventually

START, SAVED, WATERMARK, CREATED_MS = 10, 50, 100, 7
KEY = CheckpointKey("orders", "mail", 0)


def position(saved: Checkpoint | None) -> int:
    """Where a subscription made at CREATED_MS goes on, when this is saved."""

    async def story() -> int:
        keeper = CheckpointKeeper(cast("Any", None), HostConfig(), lambda *_: None)
        tools = Tools(cast("Any", None), keeper, lambda _: saved, NoCounters(), HostConfig())
        record = SubscriptionRecord(
            name="mail", queue="orders", generation="g", created_ms=CREATED_MS, starts={0: START}, all_partitions=True,
            topics=(),
        )  # fmt: skip
        listener = ListenerRecord(address="127.0.0.1", port=1, token="t")
        return await Delivery(Attached("g", record, listener), tools)._position(KEY, START, WATERMARK)

    return trio.run(story)


def test_it_begins_at_the_start_asked_for_and_goes_on_from_the_checkpoint() -> None:
    assert position(None) == START
    assert position(Checkpoint(SAVED, 1, CREATED_MS)) == SAVED


@pytest.mark.parametrize("created_ms", [CREATED_MS - 1, CREATED_MS + 1], ids=["earlier", "by-a-clock-ahead"])
def test_a_checkpoint_of_another_subscription_of_the_same_name_does_not_count(created_ms: int) -> None:
    assert position(Checkpoint(SAVED, 1, created_ms)) == START


def test_it_never_begins_beyond_what_is_stored() -> None:
    assert position(Checkpoint(WATERMARK + 1, 1, CREATED_MS)) == WATERMARK


class ScriptedOwned:
    """A partition of this host that holds nothing, and that can be given away."""

    epoch, version, watermark = 1, 0, WATERMARK

    def __init__(self) -> None:
        self.partition = ScriptedPartition([])
        self.readers: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def source(self) -> ScriptedPartition:
        return self.partition

    @contextmanager
    def reading(self, drain: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
        self.readers.append((drain, end))
        try:
            yield
        finally:
            self.readers.remove((drain, end))


class ScriptedPartitions:
    """Gives this host the partition as often as told, then has it wait."""

    def __init__(self, *owned: ScriptedOwned) -> None:
        self.owned = list(owned)
        self.asked = 0

    async def acquire(self, queue: str, partition: int) -> ScriptedOwned:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        if not self.owned:
            await trio.sleep_forever()
        return self.owned.pop(0)


def told(partitions: ScriptedPartitions, story: Callable[[Delivery], Awaitable[None]]) -> None:
    """Run a delivery whose listener cannot be reached, and a story with it; the delivery ends after the story."""

    async def run() -> None:
        keeper = CheckpointKeeper(cast("Any", None), HostConfig(), lambda *_: None)
        tools = Tools(partitions, keeper, lambda _: None, NoCounters(), HostConfig())
        record = SubscriptionRecord(
            name="mail", queue="orders", generation="g", created_ms=CREATED_MS, starts={0: START}, all_partitions=True,
            topics=(),
        )  # fmt: skip
        listener = ListenerRecord(address="127.0.0.1", port=1, token="t")
        delivery = Delivery(Attached("g", record, listener), tools)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(delivery.run)
                await story(delivery)

    trio.run(run)


def test_when_the_partition_goes_to_another_host_the_delivery_waits_for_its_return_at_once() -> None:
    first, second = ScriptedOwned(), ScriptedOwned()
    partitions = ScriptedPartitions(first, second)

    async def story(delivery: Delivery) -> None:
        await eventually(lambda: bool(first.readers))
        for tell in first.readers[0]:
            tell()
        with trio.fail_after(0.5):
            await eventually(lambda: bool(second.readers))
        assert (list(delivery.workers), first.readers) == ([0], [])
        for tell in second.readers[0]:
            tell()
        await eventually(lambda: partitions.asked == 3)
        assert (delivery.workers, second.readers) == ({}, [])
        delivery.drain()

    told(partitions, story)


def test_a_delivery_that_waits_for_a_partition_ends_at_once_when_it_is_drained() -> None:
    partitions = ScriptedPartitions()

    async def story(delivery: Delivery) -> None:
        await eventually(lambda: partitions.asked == 1)
        delivery.drain()

    told(partitions, story)
