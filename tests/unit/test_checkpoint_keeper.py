"""The CheckpointKeeper: many positions in one write, none lost when ZooKeeper is away, none saved by a former owner."""

from __future__ import annotations

from collections.abc import Sequence

import trio
import trio.testing

from delivery.config import HostConfig
from delivery.dispatch.checkpoints import CheckpointKeeper, CheckpointKey, Update
from delivery.errors import Fenced, HootError, MetadataUnavailable, UnknownSubscription
from delivery.metastore.records import Checkpoint

CONFIG = HostConfig(checkpoint_interval_seconds=0.05, checkpoint_batch=10, reconnect_delay_max_seconds=0.05)


class ScriptedCheckpoints:
    """Remembers each write; fails as told."""

    def __init__(self) -> None:
        self.writes: list[dict[CheckpointKey, int]] = []
        self.away = 0
        self.refused: dict[CheckpointKey, HootError] = {}

    def save_checkpoints(self, updates: Sequence[Update]) -> list[HootError | None]:
        if self.away:
            self.away -= 1
            raise MetadataUnavailable("ZooKeeper is away")
        errors = [self.refused.get(update.key) for update in updates]
        taken = [update for update, error in zip(updates, errors, strict=True) if error is None]
        self.writes.append({update.key: update.checkpoint.id for update in taken})
        return errors

    def saved(self) -> dict[CheckpointKey, int]:
        return {key: position for write in self.writes for key, position in write.items()}


def key(partition: int, subscription: str = "mail") -> CheckpointKey:
    return CheckpointKey("orders", subscription, partition)


def update(partition: int, position: int) -> Update:
    return Update(key(partition), Checkpoint(position, 1, 0), 0)


def kept(store: ScriptedCheckpoints, fenced: list[tuple[str, int]] | None = None) -> CheckpointKeeper:
    def on_fenced(queue: str, partition: int) -> None:
        (fenced if fenced is not None else []).append((queue, partition))

    return CheckpointKeeper(store, CONFIG, on_fenced)


async def until_saved(keeper: CheckpointKeeper) -> None:
    with trio.fail_after(10):
        while keeper.due:  # noqa: ASYNC110 - the keeper tells nobody when it is done
            await trio.sleep(0.005)


def test_positions_of_one_interval_go_out_in_one_write_and_only_the_newest_of_each() -> None:
    async def story() -> None:
        store = ScriptedCheckpoints()
        keeper = kept(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            for position in range(1, 100):
                keeper.note(update(0, position))
                keeper.note(update(1, position * 2))
            await trio.sleep(0.2)
            nursery.cancel_scope.cancel()
        assert store.writes == [{key(0): 99, key(1): 198}]

    trio.run(story)


def test_a_flush_by_somebody_else_does_not_make_the_writer_miss_what_comes_later() -> None:
    async def story() -> None:
        store = ScriptedCheckpoints()
        keeper = kept(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            await trio.testing.wait_all_tasks_blocked()
            await keeper.flush()
            keeper.note(update(0, 5))
            await until_saved(keeper)
            nursery.cancel_scope.cancel()
        assert store.saved() == {key(0): 5}

    trio.run(story)


def test_as_many_as_fit_a_write_do_not_wait_for_the_interval() -> None:
    async def story() -> None:
        store = ScriptedCheckpoints()
        keeper = CheckpointKeeper(
            store, HostConfig(checkpoint_interval_seconds=60, checkpoint_batch=10), lambda *_: None
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            for partition in range(25):
                keeper.note(update(partition, 7))
            await until_saved(keeper)
            nursery.cancel_scope.cancel()
        assert [len(write) for write in store.writes] == [10, 10, 5]

    trio.run(story)


def test_what_zookeeper_could_not_take_stays_due_and_a_newer_position_replaces_it() -> None:
    async def story() -> None:
        store = ScriptedCheckpoints()
        store.away = 2
        keeper = kept(store)
        keeper.note(update(0, 5))
        assert not await keeper.flush()
        assert keeper.due == 1
        keeper.note(update(0, 9))
        assert not await keeper.flush()
        assert await keeper.flush()
        assert store.writes == [{key(0): 9}]

    trio.run(story)


def test_a_former_owner_saves_nothing_and_hears_of_it_while_the_others_are_saved() -> None:
    async def story() -> None:
        store, fenced = ScriptedCheckpoints(), list[tuple[str, int]]()
        store.refused[key(1)] = Fenced("another host owns it")
        keeper = kept(store, fenced)
        for partition in range(3):
            keeper.note(update(partition, 8))
        assert await keeper.flush()
        assert store.saved() == {key(0): 8, key(2): 8}
        assert fenced == [("orders", 1)]
        assert keeper.due == 0

    trio.run(story)


def test_the_checkpoint_of_a_deleted_subscription_is_dropped() -> None:
    async def story() -> None:
        store = ScriptedCheckpoints()
        store.refused[key(0)] = UnknownSubscription("unsubscribed")
        keeper = kept(store)
        keeper.note(update(0, 8))
        assert await keeper.flush()
        assert keeper.due == 0

    trio.run(story)
