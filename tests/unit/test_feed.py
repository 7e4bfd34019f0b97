"""Readers of a partition sleep until there is more, and wake when there is or when the partition is lost."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from delivery.cluster.feed import PartitionFeed
from delivery.errors import HootError, NotOwner


def test_many_wait_and_each_wakes_for_what_it_waits_for() -> None:
    async def story() -> None:
        feed = PartitionFeed(10)
        woken: list[int] = []

        async def wait(after: int) -> None:
            await feed.wait_beyond(after)
            woken.append(after)

        async with trio.open_nursery() as nursery:
            for after in (10, 10, 15, 19):
                nursery.start_soon(wait, after)
            await wait_all_tasks_blocked()
            feed.advance(15)
            await wait_all_tasks_blocked()
            assert woken == [10, 10]
            feed.advance(20)
        assert sorted(woken) == [10, 10, 15, 19]

    trio.run(story, clock=MockClock(autojump_threshold=0))


def test_one_who_is_behind_does_not_wait() -> None:
    async def story() -> None:
        with trio.fail_after(1):
            await PartitionFeed(10).wait_beyond(9)

    trio.run(story)


def test_everyone_gets_the_reason_of_a_lost_partition_now_and_later() -> None:
    async def story() -> None:
        feed = PartitionFeed(10)
        errors: list[HootError] = []

        async def wait() -> None:
            with pytest.raises(NotOwner) as caught:
                await feed.wait_beyond(10)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            feed.close(NotOwner("taken over", address="10.0.0.2:7000"))
            feed.close(NotOwner("a later reason"))
        await wait()
        assert [(error.message, error.address) for error in errors] == [("taken over", "10.0.0.2:7000")] * 3
        assert len(set(map(id, errors))) == 3

    trio.run(story)


def test_a_follower_is_told_of_every_move_and_of_the_end_until_it_unfollows() -> None:
    feed = PartitionFeed(10)
    told: list[tuple[int, bool]] = []

    def tell() -> None:
        told.append((feed.watermark, feed.error is not None))

    feed.follow(tell)
    feed.advance(11)
    feed.unfollow(tell)
    feed.advance(12)
    feed.follow(tell)
    feed.close(NotOwner("taken over"))
    assert told == [(11, False), (12, True)]
