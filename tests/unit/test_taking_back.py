"""What is not acknowledged by hand in time, or given back."""

from __future__ import annotations

import pytest
import trio

from delivery.dispatch.worker import Begin
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.policy import Order
from subscriber import Reject, Retry
from tests.unit.by_hand import LIMIT, Desk, policy
from tests.unit.by_key import batch


def test_what_is_not_acknowledged_in_time_comes_again_after_the_pause_with_all_that_is_open_behind_it() -> None:
    desk = Desk([batch(100, *"abc"), batch(200, *"ab")], policy())

    async def story() -> None:
        assert desk.numbers == [100, 101, 102, 200, 201]
        assert desk.last(100).ack()
        assert desk.last(102).ack(), "behind one that is not"
        assert desk.last(201).ack()
        first = desk.last(101)
        await trio.sleep(LIMIT)
        assert not first.ack(), "too late"
        assert not desk.got[3].ack(), "nor can what had to wait for it be acknowledged before it"
        assert (desk.site.position, len(desk.got)) == (100, 5)
        failing = desk.site.ledger.failing[-1]
        assert failing is not None
        assert (failing.failures, failing.last_error) == (1, "TimeoutError: it was not acknowledged within 30 s")
        await trio.sleep(10)
        assert desk.numbers[5:] == [101, 200], "what was acknowledged does not come again"
        assert not first.ack(), "a late one counts for no later delivery"
        assert desk.last(200).ack()
        assert desk.last(101).ack()
        await trio.sleep(1)
        assert desk.site.position == 201
        await trio.sleep(1000)
        assert len(desk.got) == 7

    desk.play(story)


def test_by_key_only_its_key_waits_and_comes_again_in_order() -> None:
    desk = Desk([batch(100, *"aab"), batch(200, *"aba-")], policy("key"))

    async def story() -> None:
        for number in (100, 102, 201, 202):
            assert desk.last(number).ack()
        assert desk.last(203).extend(1000)
        assert desk.last(200).extend(1000), "which does not help it past one before it"
        await trio.sleep(LIMIT)
        assert not desk.last(101).ack()
        assert not desk.last(200).ack(), "behind it in its key"
        assert desk.parked == [], "the answer waits for what was extended"
        assert desk.last(203).ack()
        await trio.sleep(1)
        assert desk.site.position == 203
        assert desk.parked == [((101, 200), 1)]
        await trio.sleep(10)
        assert desk.numbers[7:] == [101, 200]
        assert desk.last(101).ack()
        await trio.sleep(LIMIT)  # and of what is repeated, the second is not acknowledged in time either
        assert desk.parked == [((200,), 1)]
        await trio.sleep(11)
        assert desk.last(200).ack()
        await trio.sleep(1)
        assert desk.parked == []

    desk.play(story)


def test_the_pause_grows_and_in_the_end_it_is_a_dead_letter_as_for_an_exception() -> None:
    desk = Desk([batch(100, *"ab")], policy(deliveries_max=3))

    async def story() -> None:
        assert desk.last(101).ack()
        await trio.sleep(1000)
        assert [round(time - desk.times[0]) for time in desk.times[2:]] == [40, 90], "30 + 10, 30 + 20"
        [letter] = desk.site.letters.kept
        assert (letter.message.number, letter.reason) == (100, "failed 3 times")
        assert letter.attempts.last_error == "TimeoutError: it was not acknowledged within 30 s"
        assert desk.site.position == 101

    desk.play(story)


@pytest.mark.parametrize("order", ["partition", "key"])
def test_what_is_given_back_comes_again_as_if_the_listener_had_said_so(order: Order) -> None:
    desk = Desk([batch(100, *"abcd")], policy(order, ack_timeout_seconds=0))

    async def story() -> None:
        assert desk.last(100).nack(Retry(after=50))
        assert not desk.last(100).ack(), "it was given back"
        assert not desk.last(100).nack(), "once"
        await trio.sleep(1)
        for number in (101, 102, 103):
            desk.last(number).ack()
        assert len(desk.got) == 4
        await trio.sleep(51)
        for number in (100, 101, 102, 103):
            if not desk.last(number).ack():
                break
        await trio.sleep(1)
        assert (desk.numbers[4:], desk.site.position) == (
            [100, 101, 102, 103] if order == "partition" else [100], 103,
        )  # fmt: skip
        assert not desk.last(103).nack(), "it was acknowledged"

    desk.play(story)


def test_what_is_rejected_by_hand_is_a_dead_letter_at_once() -> None:
    desk = Desk([batch(100, *"ab")], policy())

    async def story() -> None:
        assert desk.last(101).ack()
        assert desk.last(100).nack(Reject("never"))
        await trio.sleep(1)
        assert [(one.message.number, one.reason) for one in desk.site.letters.kept] == [(100, "rejected")]
        assert (desk.site.position, desk.numbers) == (101, [100, 101])

    desk.play(story)


def test_behind_a_failure_that_cannot_be_told_yet_nobody_is_called() -> None:
    desk = Desk([batch(100, *"ab")], policy())

    async def story() -> None:
        assert desk.last(100).extend(200)
        await trio.sleep(LIMIT)
        assert not desk.last(101).ack()
        desk.site.partition.add(batch(200, *"ab"))
        await trio.sleep(10)
        assert desk.numbers == [100, 101], "what is pushed meanwhile waits for what failed"
        assert desk.last(100).ack()
        await trio.sleep(20)
        assert desk.numbers[2:] == [101, 200, 201]
        failing = desk.site.ledger.failing[-1]
        assert failing is not None
        assert (failing.after, failing.failures) == (100, 1)

    desk.play(story)


@pytest.mark.parametrize("order", ["partition", "key"])
def test_what_is_parked_stays_so_when_nobody_acknowledges_it(order: Order) -> None:
    """With the order of the partition it was parked before somebody changed that, and comes first."""
    desk = Desk([batch(100, *"abca-"), batch(200, *"ab")], policy(order))
    parked = (ParkedKey(b"a", (100, 103), failures=1), ParkedKey(None, (104,), failures=1))
    desk.site.begin = Begin(104, 7, policy(order), parked=parked)
    desk.site.position = 104

    async def story() -> None:
        assert {100, 103, 104} <= set(desk.numbers)
        assert desk.last(103).ack()
        assert desk.last(104).ack()
        for number in (200, 201):
            if number in desk.numbers:
                desk.last(number).ack()
        await trio.sleep(LIMIT)
        assert (100, 2) in [(ids[0], failures) for ids, failures in desk.parked]
        await trio.sleep(25)
        assert desk.numbers.count(100) == 2
        assert desk.last(100).ack()
        await trio.sleep(1)
        for number in (200, 201):
            desk.last(number).ack()
        await trio.sleep(1)
        assert (desk.parked, desk.site.position) == ([], 201)
        assert desk.numbers.count(103) == desk.numbers.count(104) == 1

    desk.play(story)


def test_an_extension_prolongs_and_never_shortens() -> None:
    desk = Desk([batch(100, *"ab")], policy())

    async def story() -> None:
        one, two = desk.got
        assert two.extend(1)
        await trio.sleep(LIMIT - 2)
        assert one.extend(100)
        await trio.sleep(3)
        assert not two.ack()
        assert one.extend(50), "less than it has"
        await trio.sleep(90)
        assert one.ack()
        assert not two.extend(10), "it was taken back"
        await trio.sleep(1)
        assert desk.site.position == 100

    desk.play(story)


def test_without_a_limit_nothing_is_taken_back() -> None:
    desk = Desk([batch(100, *"ab")], policy(ack_timeout_seconds=0))

    async def story() -> None:
        await trio.sleep(9000)
        assert [one.ack() for one in desk.got] == [True, True]
        await trio.sleep(1)
        assert desk.site.position == 101

    desk.play(story)


@pytest.mark.parametrize("order", ["partition", "key"])
@pytest.mark.parametrize("to", [100, 102])
def test_what_was_open_when_somebody_moved_the_position_fails_no_more(order: Order, to: int) -> None:
    desk = Desk([batch(100, *"aaa"), batch(200, *"ab")], policy(order))
    site = desk.site

    async def story() -> None:
        old = list(desk.got)
        assert [one.number for one in old] == [100, 101, 102, 200, 201]
        site.worker_now.abandon()
        site.begin, site.moves, site.position = Begin(to, 1000, policy(order)), 1, to
        async with trio.open_nursery() as nursery:
            nursery.start_soon(site.worker().run, site.process)
            await trio.sleep(1)
            again = desk.numbers[5:]
            assert again == [number for number in (101, 102, 200, 201) if number > to]
            for number in again:
                desk.last(number).ack()
            await trio.sleep(1000)
            assert desk.numbers[5:] == again, "nothing comes again by what was open before"
            assert [one.ack() for one in old[: 1 if to == 100 else 3]] == [False] * (1 if to == 100 else 3)
            assert (site.position, desk.parked) == (201, [])
            nursery.cancel_scope.cancel()

    desk.play(story)
