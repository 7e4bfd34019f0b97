"""What a host knows of transactions for its deliveries: asked for while somebody waits, and never else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import trio

from delivery import hop
from delivery.api.visibility import WAIT_SECONDS, Visibility
from delivery.cluster.transacting import Transacting
from delivery.errors import HootError, NoHost
from delivery.messaging.transactions import Snapshot
from delivery.metastore.tables.memory import MemoryData
from delivery.transactions.asks import Abort, Begin, Begun, Commit
from tests.dispatch import simulated
from tests.unit.transactions.test_seat import Host, nobody


class Service:
    """The manager, as it is asked from another host."""

    def __init__(self) -> None:
        self.transacting = Transacting(Host(MemoryData(), "a").seat, lambda: None, nobody)
        self.asked: list[float] = []
        self.error: HootError | None = None
        self.visibility = Visibility(self._look, cast("Any", None))

    async def _look(self, unfinished: Sequence[int], seconds: float) -> Snapshot:
        self.asked.append(seconds)
        if self.error is not None:
            raise self.error
        return await self.transacting.changed(unfinished, seconds)

    async def begin(self) -> int:
        begun = await self.transacting.answer(Begin(600_000))
        assert isinstance(begun, Begun)
        return begun.pointer

    async def waits(self, pointer: int, ended: dict[int, float]) -> None:
        await self.visibility.ended(pointer)
        ended[pointer] = trio.current_time()


def told(story: Callable[[Service, trio.Nursery], Awaitable[None]]) -> None:
    async def run() -> None:
        hop.AT_ONCE.set(True)
        service = Service()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.visibility.run)
            await story(service, nursery)
            nursery.cancel_scope.cancel()

    simulated(run)


def test_whoever_waits_hears_at_once_of_the_end_and_nobody_is_asked_before_or_after() -> None:
    async def story(service: Service, nursery: trio.Nursery) -> None:
        first, second = await service.begin(), await service.begin()
        await trio.sleep(1000)
        assert service.asked == []
        ended: dict[int, float] = {}
        for pointer in (first, first, second):
            nursery.start_soon(service.waits, pointer, ended)
        await trio.sleep(100)
        assert ended == {}
        assert len(service.asked) < 3 + 100 / WAIT_SECONDS
        for pointer, end in ((second, Commit(second)), (first, Abort(first))):
            now = trio.current_time()
            await service.transacting.answer(end)
            await trio.sleep(1)
            assert ended[pointer] - now < 0.1
        asked = len(service.asked)
        await trio.sleep(1000)
        assert len(service.asked) <= asked + 1
        view = await service.visibility.view()
        assert view.in_progress == ()

    told(story)


def test_one_that_ended_before_it_was_waited_for_is_heard_of_at_once_while_another_goes_on() -> None:
    async def story(service: Service, nursery: trio.Nursery) -> None:
        going_on, over = await service.begin(), await service.begin()
        await service.visibility.view()
        await service.transacting.answer(Commit(over))
        nursery.start_soon(service.waits, going_on, {})
        await trio.sleep(WAIT_SECONDS / 10)
        with trio.fail_after(WAIT_SECONDS / 10):
            await service.visibility.ended(over)

    told(story)


def test_while_nobody_answers_the_reason_is_told_and_it_goes_on_by_itself() -> None:
    async def story(service: Service, nursery: trio.Nursery) -> None:
        pointer, ended = await service.begin(), dict[int, float]()
        service.error = NoHost("nobody lives")
        nursery.start_soon(service.waits, pointer, ended)
        await trio.sleep(10)
        assert service.visibility.trouble == "nobody lives"
        await service.transacting.answer(Commit(pointer))
        service.error = None
        await trio.sleep(3)
        assert service.visibility.trouble == ""
        assert pointer in ended

    told(story)
