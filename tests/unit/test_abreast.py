"""Keys of a partition that are worked off side by side: a real worker and a real subscriber's service, on a virtual
clock, and strands whose jobs run in any order.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, cast
from unittest import mock

import pytest

from delivery.batch import headers_in, open_batch
from delivery.model import Message
from subscriber import Reject, Retry, holding
from subscriber.abreast import Abreast, Work
from subscriber.holding import Unhandled
from subscriber.inbox import PartitionInbox, Status
from tests.dispatch import NotedLedger, simulated
from tests.unit.by_key import ScriptedStrands, Site, batch


def batches_of(random: Random, count: int) -> list[bytes]:
    return [batch(1000 * n, *(random.choice("abcde-") for _ in range(random.randint(1, 6)))) for n in range(1, count)]


@pytest.mark.parametrize("seed", range(12))
def test_failures_and_broken_connections_at_random_keep_each_key_in_order_and_call_nobody_twice(seed: int) -> None:
    async def story() -> None:
        random = Random(seed)
        handled: list[Message] = []
        running: set[bytes | None] = set()

        def handle(message: Message) -> object:
            assert message.key is None or message.key not in running, "two callbacks of one key at the same time"
            running.add(message.key)
            what = random.random()
            running.discard(message.key)
            if what < 0.1:
                raise ValueError("no")
            if what < 0.15:
                return Retry(after=random.random())
            handled.append(message)
            return None

        batches = batches_of(random, 40)
        strands = ScriptedStrands(random)
        site = Site(batches, handle, strands=strands)
        site.process.lose = lambda: random.random() < 0.05
        ids = [number for one in batches for number in open_batch(one).ids()]

        def moved(position: int) -> None:
            covered = {one.number for one in handled} | {number for one in site.ledger.parked for number in one.ids}
            assert all(number in covered for number in ids if number <= position), "acknowledged and not handled"
            site.position = position

        site.ledger = NotedLedger(moved)
        await site.run(1000)
        for key in b"abcde":
            mine = [one.number for one in handled if one.key == bytes([key])]
            assert mine == sorted(set(mine))
        found = sorted(one.number for one in handled)
        assert len(found) == len(set(found))
        assert (len(found), site.position, site.ledger.parked) == (_count(batches), _last(batches), ())
        assert strands.most_busy > 1

    simulated(story)


@pytest.mark.parametrize("seed", range(8))
def test_where_nothing_more_can_be_held_the_run_ends_and_nothing_is_lost(seed: int) -> None:
    async def story() -> None:
        random = Random(seed)
        handled: list[int] = []

        def handle(message: Message) -> object:
            if random.random() < 0.3:
                raise ValueError("no")
            handled.append(message.number)
            return None

        batches = batches_of(random, 15)
        site = Site(batches, handle, strands=ScriptedStrands(random))
        await site.run(1000)
        assert (len(set(handled)), site.position) == (_count(batches), _last(batches))

    with mock.patch.object(holding, "UNSETTLED_MAX", 2):
        simulated(story)


def test_a_slow_key_holds_up_neither_other_keys_nor_the_pushes_behind_it_nor_their_answers_but_the_position() -> None:
    async def story() -> None:
        begun: list[int] = []
        strands = ScriptedStrands(Random(1), within=0)
        site: Site

        def handle(message: Message) -> None:
            begun.append(message.number)
            if message.number == 100:
                while strands.step():
                    pass
                assert set(begun) == {100, 101, 200, 201, *range(300, 314)}
                assert site.worker_now.unacknowledged == 5, "the last push is answered: nothing holds it up"
                assert site.position == 0, "the first push has not ended"

        site = Site([batch(100, *"ab"), batch(200, *"cba"), batch(300, *"d" * 14)], handle, strands=strands)
        strands.pause_seconds = 1
        await site.run(5)
        assert begun[-1] == 202
        assert site.position == 313

    simulated(story)


def test_a_message_that_is_rejected_becomes_a_dead_letter_and_its_key_goes_on() -> None:
    async def story() -> None:
        handled: list[int] = []

        def handle(message: Message) -> object:
            if message.number == 100:
                return Reject("never")
            handled.append(message.number)
            return None

        site = Site([batch(100, *"aba")], handle, strands=ScriptedStrands(Random(2)))
        await site.run(60)
        assert [one.message.number for one in site.letters.kept] == [100]
        assert (sorted(handled), site.position, site.ledger.parked) == ([101, 102], 102, ())

    simulated(story)


class FakePush:
    """A push of three messages without keys, which writes down what becomes of it."""

    again = is_whole = False
    outstay_seconds = 0.0

    def __init__(self, inbox: PartitionInbox, run: int, moves: int, events: list[tuple[int, str]]) -> None:
        self.turn, self._inbox, self._moves, self.events = (1, run), inbox, moves, events

    def begin(self) -> Work | Status:
        begin = self._inbox.begin(self.turn, 0, self._moves)
        assert not isinstance(begin, Status)
        self.events.append((self.turn[1], f"begins behind {begin}"))
        return Work([Message(n, b"", "", None, 0, "orders") for n in (1, 2, 3) if n > begin], 3)

    def call(self, message: Message) -> None:
        self.events.append((self.turn[1], f"calls for {message.number}"))

    def end_early(self, position: int) -> bool:
        raise AssertionError("nothing is before it")

    def end(self, position: int, unhandled: list[Unhandled] | None) -> None:
        self._inbox.end(position)
        self.events.append((self.turn[1], "ends"))


def test_a_new_turn_begins_when_nothing_of_the_one_before_is_under_way() -> None:
    """Else what ends late of a turn before somebody moved the position would count as handled in the new one."""
    inbox, events, jobs = PartitionInbox(), list[tuple[int, str]](), list[Callable[[], None]]()
    abreast = Abreast(inbox, lambda _, job: jobs.append(job))
    abreast.take(cast("Any", FakePush(inbox, 1, 0, events)))
    jobs.pop(0)()
    abreast.take(cast("Any", FakePush(inbox, 2, 1, events)))
    while jobs:
        jobs.pop(0)()
    assert events == [
        (1, "begins behind 0"), (1, "calls for 1"), (1, "calls for 2"), (1, "calls for 3"), (1, "ends"),
        (2, "begins behind 0"), (2, "calls for 1"), (2, "calls for 2"), (2, "calls for 3"), (2, "ends"),
    ]  # fmt: skip


def _count(batches: list[bytes]) -> int:
    return sum(header.count for one in batches for _, header in headers_in(one))


def _last(batches: list[bytes]) -> int:
    return max(header.last_id for one in batches for _, header in headers_in(one))


def test_the_loop_may_ask_what_is_due_while_a_listener_is_called_with_the_whole_of_a_push() -> None:
    """Such a listener may itself wait for the loop."""
    begun, go_on = threading.Event(), threading.Event()

    def handle() -> None:
        begun.set()
        assert go_on.wait(20)

    whole = mock.Mock(is_whole=True, turn=(1, 0), handle=handle)
    under_test = Abreast(PartitionInbox(), lambda _, job: job())
    caller = threading.Thread(target=under_test.take, args=(whole,))
    caller.start()
    assert begun.wait(20)
    asking = ThreadPoolExecutor(1)
    try:
        assert asking.submit(under_test.due).result(10) == math.inf
    finally:
        go_on.set()
        caller.join(20)
        asking.shutdown()
