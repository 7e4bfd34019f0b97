"""The order of keys where a filter or `where` leaves messages out, and where somebody moves the position."""

from __future__ import annotations

from random import Random

import pytest
import trio

from delivery.dispatch.worker import Begin
from delivery.metastore.managers.records import ParkedKey
from delivery.model import Message
from tests.dispatch import simulated
from tests.unit.by_key import POLICY, Site, batch


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("beside", ["host", "subscriber"])
def test_failures_and_broken_connections_at_random_call_nobody_twice_where_much_is_left_out(
    seed: int, beside: str
) -> None:
    """Whoever leaves it out: what a retry push follows is what the listener knows, not what the host has passed."""

    async def story() -> None:
        random = Random(seed)
        handled: list[Message] = []

        def handle(message: Message) -> None:
            if random.random() < 0.2:
                raise ValueError("no")
            handled.append(message)

        keys = [[random.choice("abxyz") for _ in range(random.randint(1, 4))] for _ in range(30)]
        left = {"topics": ("a", "b")} if beside == "host" else {"where": lambda message: message.key in (b"a", b"b")}
        site = Site([batch(1000 * n, *some) for n, some in enumerate(keys, 1)], handle, **left)
        site.process.lose = lambda: random.random() < 0.1
        await site.run(3000)
        for key in "ab":
            mine = [1000 * n + at for n, some in enumerate(keys, 1) for at, one in enumerate(some) if one == key]
            assert [one.number for one in handled if one.key == key.encode()] == mine
        assert all(one.key in (b"a", b"b") for one in handled)
        assert site.ledger.parked == ()

    simulated(story)


def test_a_message_of_which_where_cannot_tell_parks_its_key_and_no_other() -> None:
    async def story() -> None:
        asked: list[int] = []
        handled: list[int] = []

        def where(message: Message) -> bool:
            asked.append(message.number)
            if message.number == 101 and asked.count(101) == 1:
                raise ValueError("what is it?")
            return message.number != 103

        site = Site([batch(100, *"ababc")], lambda message: handled.append(message.number), where=where)
        await site.run(0.5)
        assert (handled, [one.ids for one in site.ledger.parked]) == ([100, 102, 104], [(101, 103)])
        assert asked == [100, 101, 102, 104], "what is held behind it is asked of when its turn comes"

    simulated(story)


def test_what_where_leaves_out_of_a_parked_key_is_handled_when_its_turn_comes() -> None:
    async def story() -> None:
        handled: list[int] = []

        def handle(message: Message) -> None:
            if message.number == 100 and trio.current_time() - start < 0.5:
                raise ValueError("not yet")
            handled.append(message.number)

        start = trio.current_time()
        site = Site([batch(100, *"aaab")], handle, where=lambda message: message.number != 101)
        await site.run(10)
        assert (handled, site.ledger.parked, site.position) == ([103, 100, 102], (), 103)

    simulated(story)


def test_what_is_parked_comes_again_whatever_the_filter_says_now() -> None:
    async def story() -> None:
        handled: list[int] = []
        parked = (ParkedKey(b"a", (100, 102), failures=1),)
        site = Site([batch(100, *"abab")], lambda message: handled.append(message.number),
                    Begin(103, 1, POLICY, None, parked), topics=("b",))  # fmt: skip
        await site.run(10)
        assert (handled, site.ledger.parked) == ([100, 102], ())

    simulated(story)


@pytest.mark.parametrize("to", [99, 101, 103])
def test_behind_a_move_by_hand_everything_comes_as_if_for_the_first_time(to: int) -> None:
    """A subscriber that still held its key would wait for a host that knows of nothing parked."""

    async def story() -> None:
        handled: list[int] = []

        def handle(message: Message) -> None:
            if message.number == 102 and not site.moves:
                raise ValueError("no")
            handled.append(message.number)

        site = Site([batch(100, *"aaaab")], handle)
        await site.run(0.5)
        assert (handled, [one.ids for one in site.ledger.parked]) == ([100, 101, 104], [(102, 103)])
        handled.clear()
        site.moves, site.begin, site.ledger.parked = 1, Begin(to, 100, POLICY), ()
        await site.run(10)
        assert handled == [number for number in range(100, 105) if number > to]
        assert site.ledger.parked == ()

    simulated(story)
