"""A bound: only the newest messages of a partition matter, what lies before them is passed over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from delivery.batch import open_batch
from delivery.dispatch.worker import Begin
from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from tests.dispatch import ScriptedPartition, simulated
from tests.unit.by_key import Site, batch


class Counting(ScriptedPartition):
    """One that can count its messages."""

    counted = 0

    @property
    def watermark(self) -> int:
        return self.ids()[-1]

    def ids(self) -> list[int]:
        return [number for one in self.batches for number in open_batch(one).ids()]

    async def count(self, after: int, until: int) -> int:
        self.counted += 1
        await trio.lowlevel.checkpoint()
        return sum(after < number <= until for number in self.ids())

    async def locate(self, after: int, until: int, counts: Sequence[int]) -> list[int]:
        await trio.lowlevel.checkpoint()
        above = [number for number in self.ids() if after < number <= until]
        return [above[count - 1] for count in counts]


def site(bound: int, *batches: bytes, position: int = 0, policy: RetryPolicy | None = None) -> tuple[Site, list[int]]:
    handled: list[int] = []

    def handle(message: Message) -> None:
        handled.append(message.number)

    begin = Begin(position, 1, policy or RetryPolicy(), bound=bound)
    found = Site(list(batches), handle, begin)
    found.partition = Counting(list(batches))
    return found, handled


@pytest.mark.parametrize(
    ("bound", "first"), [(1, 1009), (5, 1005), (10, 1000), (12, 908), (999, 100), (1000, 100), (0, 100)]
)
def test_only_the_newest_messages_are_delivered_and_the_position_passes_all(bound: int, first: int) -> None:
    async def story() -> None:
        batches = [batch(100 * n, *"ab-ab-ab-a") for n in range(1, 11)]
        one, handled = site(bound, *batches)
        await one.run(30)
        assert handled == [number for b in batches for number in open_batch(b).ids() if number >= first]
        assert one.position == 1009

    simulated(story)


def test_two_subscriptions_of_a_partition_have_each_its_own() -> None:
    async def story() -> None:
        batches = [batch(100 * n, *"aaaaa") for n in range(1, 9)]
        for bound, count in ((5, 5), (20, 20), (0, 40)):
            one, handled = site(bound, *batches)
            await one.run(30)
            assert len(handled) == count

    simulated(story)


def test_who_keeps_up_gets_everything_and_nothing_is_counted() -> None:
    async def story() -> None:
        one, handled = site(2, batch(100, "a"))
        partition = one.partition
        assert isinstance(partition, Counting)

        async def publish() -> None:
            for n in range(2, 7):
                await trio.sleep(1)
                partition.add(batch(100 * n, *"ab"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            await one.run(30)
        assert handled == [100, *(100 * n + at for n in range(2, 7) for at in (0, 1))]
        assert partition.counted == 0

    simulated(story)


def test_a_batch_that_comes_while_it_rests_is_cut_too() -> None:
    async def story() -> None:
        one, handled = site(2, batch(100, "a"))

        async def publish() -> None:
            await trio.sleep(1)
            one.partition.add(batch(200, *"abcdef"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            await one.run(30)
        assert (handled, one.position) == ([100, 204, 205], 205)

    simulated(story)
