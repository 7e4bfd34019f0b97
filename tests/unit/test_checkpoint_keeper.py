"""The CheckpointKeeper: many positions in one save, none lost when ZooKeeper is away, none saved by a former owner."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from delivery.config import HostConfig
from delivery.dispatch.checkpoints import CheckpointKeeper
from delivery.errors import Fenced, MetadataUnavailable, UnknownSubscription
from tests.checkpoints import Kept, ScriptedStates, key, taken
from tests.hosting import eventually


async def until_saved(keeper: CheckpointKeeper) -> None:
    with trio.fail_after(10):
        while keeper.due:  # noqa: ASYNC110 - the keeper tells nobody when it is done
            await trio.sleep(0.005)
        await keeper.flush()  # returns when what was on its way is saved


def test_positions_of_one_interval_go_out_in_one_write_and_only_the_newest_of_each() -> None:
    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            for position in range(1, 100):
                keeper.note(0, position)
                keeper.note(1, position * 2)
            await until_saved(keeper)
            nursery.cancel_scope.cancel()
        assert store.writes == [{key(0): 99, key(1): 198}]

    trio.run(story)


def test_a_flush_by_somebody_else_does_not_make_the_writer_miss_what_comes_later() -> None:
    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            await trio.testing.wait_all_tasks_blocked()
            await keeper.flush()
            keeper.note(0, 5)
            await until_saved(keeper)
            nursery.cancel_scope.cancel()
        assert store.saved() == {key(0): 5}

    trio.run(story)


def test_as_many_as_fit_a_write_do_not_wait_for_the_interval() -> None:
    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store, HostConfig(checkpoint_interval_seconds=60, checkpoint_batch=10))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            for partition in range(25):
                keeper.note(partition, 7)
            await until_saved(keeper)
            nursery.cancel_scope.cancel()
        assert [len(write) for write in store.writes] == [10, 10, 5]

    trio.run(story)


def test_what_zookeeper_could_not_take_stays_due_and_a_newer_position_replaces_it() -> None:
    async def story() -> None:
        store = ScriptedStates()
        store.away = 2
        keeper = Kept(store)
        keeper.note(0, 5)
        assert not await keeper.flush()
        assert keeper.due == 1
        keeper.note(0, 9)
        assert not await keeper.flush()
        assert await keeper.flush()
        assert store.writes == [{key(0): 5}, {key(0): 9}], "first what is in doubt, as it was"

    trio.run(story)


def test_what_somebody_else_could_not_save_is_saved_in_its_time_without_a_new_position() -> None:
    async def story() -> None:
        store = ScriptedStates()
        store.away, store.gate = 1, threading.Event()
        keeper = Kept(store)
        async with trio.open_nursery() as nursery:
            keeper.note(0, 5)
            nursery.start_soon(keeper.flush_partition, "orders", 0)
            await eventually(lambda: store.begun == 1)
            nursery.start_soon(keeper.run)
            await trio.testing.wait_all_tasks_blocked()
            store.gate.set()
            await eventually(lambda: store.saved() == {key(0): 5})
            nursery.cancel_scope.cancel()

    trio.run(story)


def test_a_former_owner_saves_nothing_and_hears_of_it_while_the_others_are_saved() -> None:
    async def story() -> None:
        store = ScriptedStates()
        store.refused[key(1)] = Fenced("another host owns it")
        keeper = Kept(store)
        for partition in range(3):
            keeper.note(partition, 8)
        assert await keeper.flush()
        assert store.saved() == {key(0): 8, key(2): 8}
        assert keeper.fenced == [("orders", 1)]
        keeper.note(1, 9)
        assert keeper.due == 0, "nothing of it counts any more"

    trio.run(story)


def test_the_checkpoint_of_a_deleted_subscription_is_dropped() -> None:
    async def story() -> None:
        store = ScriptedStates()
        store.refused[key(0)] = UnknownSubscription("unsubscribed")
        keeper = Kept(store)
        keeper.note(0, 8)
        assert await keeper.flush()
        assert keeper.due == 0

    trio.run(story)


def test_a_save_whose_answer_is_lost_is_settled_before_anything_newer_and_no_operator_is_blamed() -> None:
    async def story() -> None:
        store = ScriptedStates()
        store.lose_answer = True
        keeper = Kept(store)
        keeper.note(0, 5)
        assert not await keeper.flush()
        keeper.note(0, 9)
        assert await keeper.flush()
        assert (keeper.due, keeper.moved) == (0, [])
        keeper.note(0, 12)
        assert await keeper.flush()
        assert store.states[key(0)].position == 12
        assert store.versions[key(0)] == 3

    trio.run(story)


def test_a_position_that_an_operator_moved_makes_its_worker_begin_anew_and_no_other() -> None:
    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store)
        keeper.note(0, 5)
        keeper.note(1, 5)
        assert await keeper.flush()
        store.versions[key(0)], store.states[key(0)] = 2, taken(2).value
        keeper.note(0, 8)
        keeper.note(1, 8)
        assert await keeper.flush()
        assert (keeper.moved, keeper.fenced, keeper.due) == ([0], [], 0)
        keeper.note(0, 9)
        assert keeper.due == 0, "the worker of before says nothing any more"
        keeper.start(0, taken(2, 3))
        store.versions[key(0)] = 3
        keeper.note(0, 3)
        assert await keeper.flush()
        assert store.states[key(0)].position == 3

    trio.run(story)


def test_a_worker_that_starts_again_waits_for_the_saves_of_the_one_before() -> None:
    async def story() -> None:
        store = ScriptedStates()
        keeper = Kept(store)
        keeper.note(0, 5)
        await keeper.settle(key(0))
        assert store.saved() == {key(0): 5}
        store.gate = threading.Event()
        keeper.note(0, 6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.flush)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(keeper.settle, key(0))
            await trio.testing.wait_all_tasks_blocked()
            assert store.saved() == {key(0): 5}
            store.gate.set()
        assert store.saved() == {key(0): 6}

    trio.run(story)


def test_a_worker_does_not_start_while_its_last_position_cannot_be_saved() -> None:
    async def story() -> None:
        store = ScriptedStates()
        store.away = 1
        keeper = Kept(store)
        keeper.note(0, 5)
        with pytest.raises(MetadataUnavailable):
            await keeper.settle(key(0))
        await keeper.settle(key(0))
        assert store.saved() == {key(0): 5}

    trio.run(story)
