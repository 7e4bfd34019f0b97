"""The positions in a partition that goes to another host: it stands still until they are saved, so they come first."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

import trio
import trio.testing

from tests.checkpoints import Kept, ScriptedStates, key
from tests.hosting import eventually


def test_a_partition_that_leaves_waits_for_no_save_of_others() -> None:
    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store)
        gate = store.gate = threading.Event()
        keeper.note(0, 5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.flush)
            await eventually(lambda: store.begun == 1)
            store.gate = None
            keeper.note(1, 7)
            keeper.note(2, 7)
            with trio.fail_after(10):
                await keeper.flush_partition("orders", 1)
                await keeper.settle(key(2))
                await keeper.settle(key(3))
            assert store.saved() == {key(1): 7, key(2): 7}
            gate.set()
        assert store.saved() == {key(0): 5, key(1): 7, key(2): 7}

    trio.run(story)


def test_a_partition_that_leaves_waits_for_a_save_of_its_own_and_saves_what_came_after_it() -> None:
    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store)
        store.gate = threading.Event()
        keeper.note(0, 5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.flush)
            await trio.testing.wait_all_tasks_blocked()
            keeper.note(0, 6)
            nursery.start_soon(keeper.flush_partition, "orders", 0)
            await trio.testing.wait_all_tasks_blocked()
            assert store.writes == []
            store.gate.set()
        assert store.writes == [{key(0): 5}, {key(0): 6}]
        assert (keeper.fenced, keeper.moved) == ([], [])

    trio.run(story)


def test_a_partition_that_leaves_has_not_left_while_its_last_save_is_under_way() -> None:
    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store)
        store.gate = threading.Event()
        keeper.note(0, 5)
        done: list[str] = []

        async def leave() -> None:
            await keeper.flush_partition("orders", 0)
            done.append("left")

        async def begin_anew() -> None:
            await keeper.settle(key(0))
            done.append("settled")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.flush)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(leave)
            nursery.start_soon(begin_anew)
            await trio.testing.wait_all_tasks_blocked()
            assert done == []
            store.gate.set()
        assert sorted(done) == ["left", "settled"]

    trio.run(story)


def test_partitions_that_leave_at_once_are_saved_together_whoever_of_them_gives_up() -> None:
    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store)
        gate = store.gate = threading.Event()
        for partition in range(5):
            keeper.note(partition, 5)
        async with trio.open_nursery() as nursery:
            busy = await nursery.start(_cancellable, keeper.flush_partition, "orders", 0)
            await trio.testing.wait_all_tasks_blocked()
            waiting = await nursery.start(_cancellable, keeper.flush_partition, "orders", 1)
            for partition in (2, 3):
                nursery.start_soon(keeper.flush_partition, "orders", partition)
            await trio.testing.wait_all_tasks_blocked()
            for scope in (busy, waiting):
                scope.cancel()
            gate.set()
        assert store.writes == [{key(0): 5}, {key(1): 5, key(2): 5, key(3): 5}]
        assert keeper.due == 1

    trio.run(story)


def test_who_gives_up_while_it_waits_leaves_those_who_came_along_to_the_next() -> None:
    """The second was about to save for the third, too, and waited for a save of its own that was under way."""

    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store)
        first, own = threading.Event(), threading.Event()
        async with trio.open_nursery() as nursery:
            store.gate = own
            keeper.note(1, 5)
            nursery.start_soon(keeper.flush)
            await eventually(lambda: store.begun == 1)
            store.gate = first
            for partition in range(3):
                keeper.note(partition, 6)
            nursery.start_soon(keeper.flush_partition, "orders", 0)
            await eventually(lambda: store.begun == 2)
            second = await nursery.start(_cancellable, keeper.flush_partition, "orders", 1)
            async with trio.open_nursery() as third:
                third.start_soon(keeper.flush_partition, "orders", 2)
                await trio.testing.wait_all_tasks_blocked()
                store.gate = None
                first.set()
                await eventually(lambda: store.saved() == {key(0): 6})
                await trio.testing.wait_all_tasks_blocked()
                second.cancel()
                own.set()
            assert store.saved()[key(2)] == 6

    trio.run(story)


async def _cancellable(
    work: Callable[[str, int], Awaitable[None]], queue: str, partition: int, *,
    task_status: trio.TaskStatus[trio.CancelScope],
) -> None:  # fmt: skip
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await work(queue, partition)
