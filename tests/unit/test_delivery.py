"""The delivery of a subscription: where it begins in a partition, and what it does while others own that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from delivery.config import HostConfig
from delivery.dispatch.background import Background
from delivery.dispatch.checkpoints import CheckpointKeeper
from delivery.dispatch.delivery import Delivery, Tools
from delivery.dispatch.lines import Lines
from delivery.dispatch.pace import AHEAD_SECONDS
from delivery.dispatch.plan import Attached
from delivery.dispatch.progress import CheckpointKey, Progress
from delivery.dispatch.taking import StateTaker
from delivery.errors import Fenced, HootError
from delivery.metastore.flow import Flow
from delivery.metastore.managers.changes import SaveState, Taken, TakeState
from delivery.metastore.managers.records import Share, SubscriptionState
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.tables.versions import Version, Versioned
from delivery.rpc.connection import Connection
from tests.dispatch import KeptLetters, NoCounters, ScriptedPartition
from tests.hosting import eventually

START, SAVED, WATERMARK, CREATED_MS = 10, 50, 100, 7
RECORD = SubscriptionRecord(
    name="mail", queue="orders", generation="g", created_ms=CREATED_MS, starts={0: START}, all_partitions=True,
    topics=(),
)  # fmt: skip


class ScriptedStates:
    """Gives the states that are there; counts."""

    def __init__(self, position: int = START) -> None:
        self.position, self.version = position, 0
        self.shares: tuple[Share, ...] = ()
        self.taken: list[list[TakeState]] = []
        self.saved: list[int] = []
        self.error: HootError | None = None

    def take_states(self, takes: Sequence[TakeState]) -> list[Taken | HootError]:
        self.taken.append(list(takes))
        self.version += 1
        return [self.error or self._state(take) for take in takes]

    def save_states(self, saves: Sequence[SaveState]) -> list[Version | HootError]:
        raise AssertionError("nothing is acknowledged here")

    def _state(self, take: TakeState) -> Taken:
        state = SubscriptionState(self.position, take.epoch, take.preferences.generation, take.preferences.created_ms)
        state = msgspec.structs.replace(state, shares=self.shares)
        return Versioned(state, Version(self.version))


def attached(record: SubscriptionRecord = RECORD) -> Attached:
    return Attached("g", record, (ListenerRecord(address="127.0.0.1", port=1, token="t"),))


def tools(states: ScriptedStates, partitions: Any = None, fenced: list[tuple[str, int]] | None = None) -> Tools:
    keeper = CheckpointKeeper(states, HostConfig(), lambda *_: None)
    taker = StateTaker(states, lambda *place: (fenced if fenced is not None else []).append(place))
    return Tools(
        partitions, keeper, taker, NoCounters(), HostConfig(), KeptLetters(), Lines(Connection.open, Background())
    )


def begun_at(position: int) -> int:
    """Where a worker begins when the state is there."""

    async def story() -> int:
        owned = ScriptedOwned()
        partitions = ScriptedPartitions(owned)
        delivery = Delivery(attached(), tools(ScriptedStates(position), partitions))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delivery.run)
            await eventually(lambda: bool(delivery.workers))
            found = delivery.workers[0].position
            nursery.cancel_scope.cancel()
        return found

    return trio.run(story)


def test_it_goes_on_where_the_state_says_which_is_the_start_at_first() -> None:
    assert begun_at(START) == START
    assert begun_at(SAVED) == SAVED


def test_it_never_begins_beyond_what_is_stored() -> None:
    assert begun_at(WATERMARK + 1) == WATERMARK


@pytest.mark.parametrize(("moves", "newest"), [(0, WATERMARK), (1, 0)])
def test_behind_a_position_that_was_moved_every_message_comes_also_before_the_preferences_say_so(
    moves: int, newest: int
) -> None:
    """A seek moves the states first: a worker that begins in between must not pass over what was asked for."""

    async def story() -> None:
        delivery = Delivery(attached(msgspec.structs.replace(RECORD, newest={0: WATERMARK})), tools(ScriptedStates()))
        state = SubscriptionState(START, 1, "g", CREATED_MS, moves)
        begin = delivery._begin(CheckpointKey("orders", "mail", 0), Versioned(state, Version(1)), WATERMARK)
        assert begin.newest == newest

    trio.run(story)


def test_the_states_of_a_moment_are_taken_over_in_one_request() -> None:
    async def story() -> None:
        states = ScriptedStates()
        taker = StateTaker(states, lambda *_: None)
        async with trio.open_nursery() as nursery:
            for epoch in range(1, 301):
                nursery.start_soon(taker.take, TakeState(RECORD, 0, epoch))
        assert sorted(take.epoch for group in states.taken for take in group) == list(range(1, 301))
        assert len(states.taken) <= 3

    trio.run(story)


def test_one_who_gives_up_waiting_for_a_state_keeps_no_other_from_it() -> None:
    async def story() -> None:
        states = ScriptedStates()
        taker = StateTaker(states, lambda *_: None)
        with trio.CancelScope() as impatient:
            impatient.cancel()
            await taker.take(TakeState(RECORD, 0, 1))
        assert (await taker.take(TakeState(RECORD, 0, 2))).value.epoch == 2

    trio.run(story)


def test_a_host_that_is_refused_a_state_looks_whether_it_owns_the_partition() -> None:
    async def story() -> None:
        fenced: list[tuple[str, int]] = []
        states = ScriptedStates()
        states.error = Fenced("a newer owner has it")
        delivery = Delivery(attached(), tools(states, ScriptedPartitions(ScriptedOwned()), fenced))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delivery.run)
            await eventually(lambda: fenced == [("orders", 0)])
            assert delivery.workers == {}
            nursery.cancel_scope.cancel()

    trio.run(story)


PAUSE = "delivery.dispatch.delivery._PAUSE_SECONDS"


def test_a_worker_whose_position_was_moved_begins_anew_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PAUSE, 60.0)  # whoever makes one comes too late

    async def story() -> None:
        states = ScriptedStates(SAVED)
        shared = tools(states, ScriptedPartitions(ScriptedOwned(), ScriptedOwned()))
        begun: list[Callable[[], None]] = []
        begin = shared.keeper.begin

        def beginning(key: CheckpointKey, taken: Taken, moved: Callable[[], None]) -> Progress:
            begun.append(moved)
            return begin(key, taken, moved)

        shared.keeper.begin = beginning  # type: ignore[method-assign]
        delivery = Delivery(attached(), shared)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delivery.run)
            await eventually(lambda: bool(delivery.workers))
            states.position = START + 1
            begun[0]()
            await eventually(lambda: len(begun) == 2 and bool(delivery.workers))
            assert delivery.workers[0].position == START + 1
            nursery.cancel_scope.cancel()

    trio.run(story)


class ScriptedOwned:
    """A partition of this host that holds nothing, and that can be given away."""

    epoch, watermark = 1, WATERMARK

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

    async def acquire(self, queue: str, partition: int, generation: str) -> ScriptedOwned:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        if not self.owned:
            await trio.sleep_forever()
        return self.owned.pop(0)


def told(partitions: ScriptedPartitions, story: Callable[[Delivery], Awaitable[None]]) -> None:
    """Run a delivery whose listener cannot be reached, and a story with it; the delivery ends after the story."""

    async def run() -> None:
        delivery = Delivery(attached(), tools(ScriptedStates(), partitions))
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(delivery.run)
                await story(delivery)

    trio.run(run)


def test_when_the_partition_goes_to_another_host_the_delivery_waits_for_its_return_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = ScriptedOwned(), ScriptedOwned()
    partitions = ScriptedPartitions(first, second)

    async def story(delivery: Delivery) -> None:
        await eventually(lambda: bool(first.readers))
        with monkeypatch.context() as patched:
            patched.setattr(PAUSE, 60.0)
            for tell in first.readers[0]:
                tell()
            await eventually(lambda: bool(second.readers))
            assert (list(delivery.workers), first.readers) == ([0], [])
            for tell in second.readers[0]:
                tell()
            await eventually(lambda: partitions.asked == 3)
        assert (delivery.workers, second.readers) == ({}, [])
        delivery.drain()

    told(partitions, story)


@pytest.mark.parametrize("owned", [(), (ScriptedOwned(),)], ids=["waits for a partition", "serves one"])
def test_a_delivery_ends_at_once_when_it_is_drained(
    monkeypatch: pytest.MonkeyPatch, owned: tuple[ScriptedOwned, ...]
) -> None:
    monkeypatch.setattr(PAUSE, 60.0)
    partitions = ScriptedPartitions(*owned)

    async def story(delivery: Delivery) -> None:
        await eventually(lambda: partitions.asked == 1 and len(delivery.workers) == len(owned))
        delivery.drain()

    told(partitions, story)


def test_a_host_has_the_part_of_the_limits_that_its_partitions_are_of_all() -> None:
    async def story() -> None:
        record = msgspec.structs.replace(RECORD, starts=dict.fromkeys(range(4), START), flow=Flow(bytes_per_second=400))
        one = msgspec.structs.replace(attached(), subscription=record)
        partitions = ScriptedPartitions(ScriptedOwned(), ScriptedOwned())
        delivery = Delivery(one, tools(ScriptedStates(), partitions))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delivery.run)
            await eventually(lambda: len(delivery.workers) == 2)
            assert delivery.gate.largest[1] == 200 * AHEAD_SECONDS
            faster = msgspec.structs.replace(record, flow=Flow(bytes_per_second=800))
            delivery.change(msgspec.structs.replace(one, subscription=faster))
            assert delivery.gate.largest[1] == 400 * AHEAD_SECONDS
            nursery.cancel_scope.cancel()

    trio.run(story)
