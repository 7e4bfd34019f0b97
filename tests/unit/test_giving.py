"""Giving many partitions away at once: a few at a time, so that none stands still for longer than it must."""

from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from delivery.cluster import use
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.sharing.turns import BUSY_SHARE, ROOM
from delivery.errors import StorageUnavailable, UnknownOutcome
from delivery.storage.base import PartitionKey
from tests.hosting import ME, batch, eventually, outcome
from tests.sharing import Company, other, together, wide

MANY = 2 * ROOM + 8


@pytest.mark.parametrize(("traffic", "at_once"), [(0, ROOM), (1, ROOM // BUSY_SHARE)], ids=["idle", "busy"])
def test_of_many_partitions_that_are_given_away_the_later_are_delivered_from_until_it_is_their_turn(
    traffic: int, at_once: int
) -> None:
    async def story(company: Company) -> None:
        owned = [await company.scene.ownership.acquire("orders", number, given=True) for number in range(MANY)]
        for one in owned:
            one.traffic.add(traffic, traffic)
        company.cluster.gate = threading.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(company.giving.empty)
            await eventually(lambda: len(company.scene.ownership) == MANY - at_once)
            await wait_all_tasks_blocked(0.05)
            assert sum(one.feed.error is None and not one.use.draining for one in owned) == MANY - at_once
            company.cluster.gate.set()
        assert len(company.peers.asked) == MANY

    together(Company(other("h", 22), cluster=wide(MANY)), story)


def test_a_host_has_what_is_on_its_way_to_another_until_the_record_says_so() -> None:
    """Who is told that a draining host has nothing left may stop it."""

    async def story(company: Company) -> None:
        await company.scene.ownership.acquire("orders", 0, given=True)
        company.cluster.gate = threading.Event()
        assert company.giving.drain(True) == 1
        await eventually(lambda: len(company.scene.ownership) == 0)
        assert company.giving.drain(True) == 1
        assert company.cluster.owners["orders", 0][0].host == ME
        company.cluster.gate.set()
        await eventually(lambda: company.giving.drain(True) == 0)
        assert company.cluster.owners["orders", 0][0].host == "h"

    together(Company(other("h", 22)), story)


def test_subscribers_that_are_slow_to_answer_keep_no_other_partition_from_its_turn() -> None:
    async def story(company: Company) -> None:
        owned = [await company.scene.ownership.acquire("orders", number, given=True) for number in range(MANY)]
        async with trio.open_nursery() as nursery:

            async def read(one: OwnedPartition) -> None:
                with trio.CancelScope() as scope, one.reading(lambda: None, scope.cancel):
                    await trio.sleep_forever()

            slow = owned[: 2 * ROOM]
            for one in slow:
                nursery.start_soon(read, one)
            await wait_all_tasks_blocked()
            nursery.start_soon(company.giving.empty, 1000.0)
            await eventually(lambda: len(company.peers.asked) == MANY - len(slow))
            await eventually(lambda: all(one.use.draining for one in slow))
            nursery.cancel_scope.cancel()

    together(Company(other("h", 22), cluster=wide(MANY)), story)


def test_a_partition_is_prepared_for_its_next_owner_before_deliveries_stop_and_given_even_if_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(company: Company) -> None:
        owned = await company.scene.ownership.acquire("orders", 0, given=True)
        drained: list[bool] = []

        def prepare(key: PartitionKey) -> None:
            assert key == owned.key
            drained.append(owned.use.draining)
            raise StorageUnavailable("the disk is full")

        monkeypatch.setattr(company.scene.store, "prepare_release", prepare)
        await company.giving.give(owned, other("h", 22))
        assert drained == [False]
        assert len(company.peers.asked) == 1

    together(Company(other("h", 22)), story)


def test_a_partition_that_is_lost_while_it_is_emptied_is_waited_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what was on its way into a store that failed nothing is heard any more."""
    monkeypatch.setattr(use, "COMMIT_SECONDS", 1000.0)

    async def story(company: Company) -> None:
        scene = company.scene
        owned = await scene.ownership.acquire("orders", 0)
        scene.store.gate, scene.store.fail = threading.Event(), StorageUnavailable("the disk is gone")
        under_way = scene.publisher.begin("orders", 0, batch(b"b"))
        async with trio.open_nursery() as nursery:

            async def give() -> None:
                with pytest.raises(StorageUnavailable, match="the disk is gone"):
                    await company.giving.give(owned, other("h", 22))

            nursery.start_soon(give)
            await eventually(lambda: owned.use.leaving)
            scene.store.gate.set()
        assert isinstance(await outcome(under_way), UnknownOutcome)
        assert company.peers.asked == []
        assert company.cluster.owners["orders", 0][0].host == ME

    together(Company(other("h", 22)), story)


def test_who_empties_a_host_twice_at_once_waits_for_nothing_twice() -> None:
    """As when a host that is draining is stopped: what one has in its hands, the other wants."""

    async def story(company: Company) -> None:
        owned = [await company.scene.ownership.acquire("orders", number, given=True) for number in range(MANY)]
        drained = [trio.Event() for _ in owned]
        async with trio.open_nursery() as nursery:

            async def read(one: OwnedPartition, asked: trio.Event) -> None:
                answered.append(one)
                with trio.CancelScope() as scope, one.reading(asked.set, scope.cancel):
                    await asked.wait()
                    await trio.sleep(0.5)

            answered: list[OwnedPartition] = []
            for one, asked in zip(owned, drained, strict=True):
                nursery.start_soon(read, one, asked)
            await eventually(lambda: len(answered) == MANY)
            for _ in range(2):
                nursery.start_soon(company.giving.empty, 1000.0)
        assert len(company.scene.ownership) == 0
        assert len(company.peers.asked) == MANY

    together(Company(other("h", 22), cluster=wide(MANY)), story)
