"""`order="key"` with a batch listener: of a list that fails only the messages at fault park their keys."""

from __future__ import annotations

import pytest

from delivery.dispatch.worker import Begin
from delivery.metastore.policy import RetryPolicy
from delivery.model import Message
from subscriber import Reject
from tests.dispatch import simulated
from tests.unit.by_key import Site, batch


def test_a_list_that_fails_comes_message_by_message_and_parks_the_key_at_fault() -> None:
    async def story() -> None:
        lists: list[list[int]] = []

        def take(messages: list[Message]) -> None:
            lists.append([message.number for message in messages])
            if lists[-1][0] <= 101 <= lists[-1][-1] and len(lists) < 8:
                raise ValueError("not yet")

        site = Site([batch(100, *"abcb-"), batch(200, *"ab-")], bool, lists=take)
        await site.run(0.9)
        assert lists[0] == [100, 101, 102, 103, 104, 200, 201, 202]
        assert lists[1:] == [[100], [101], [102], [104], [200], [202]], "103 and 201 wait for 101"
        assert (site.position, [one.ids for one in site.ledger.parked]) == (202, [(101, 103, 201)])

    simulated(story)


def test_what_was_parked_is_given_up_or_handled_in_order_and_nothing_is_lost() -> None:
    async def story() -> None:
        handled: list[int] = []

        def take(messages: list[Message]) -> Reject | None:
            numbers = [message.number for message in messages]
            if 102 in numbers:
                return Reject("never")
            if 101 in numbers and not retried:
                retried.append(101)
                raise ValueError("once")
            handled.extend(numbers)
            return None

        retried: list[int] = []
        site = Site([batch(100, *"abca"), batch(200, *"abc")], bool, lists=take)
        await site.run(10)
        assert [(one.message.number, one.reason) for one in site.letters.kept] == [(102, "rejected")]
        assert (site.position, site.ledger.parked) == (202, ())
        assert set(handled) == {100, 101, 103, 200, 201, 202}
        assert [number for number in handled if number in (101, 201)] == [101, 201]

    simulated(story)


def test_a_message_listener_before_it_that_fails_parks_its_message_and_the_rest_stays_a_list() -> None:
    async def story() -> None:
        lists: list[list[int]] = []

        def each(message: Message) -> None:
            if message.number == 101:
                raise ValueError("no")

        def take(messages: list[Message]) -> None:
            lists.append([message.number for message in messages])

        site = Site([batch(100, *"abcb-")], each, lists=take)
        await site.run(0.5)
        assert lists == [[100], [102, 104]]
        assert [one.ids for one in site.ledger.parked] == [(101, 103)]

    simulated(story)


@pytest.mark.parametrize("deliveries_max", [1, 3])
def test_a_list_that_always_fails_gives_up_each_of_its_messages_and_loses_none(deliveries_max: int) -> None:
    async def story() -> None:
        def take(messages: list[Message]) -> None:
            raise ValueError("no")

        policy = RetryPolicy(order="key", first_seconds=1, jitter=0, deliveries_max=deliveries_max)
        site = Site([batch(100, *"ab-a")], bool, Begin(0, 1, policy), lists=take)
        await site.run(60)
        assert sorted(one.message.number for one in site.letters.kept) == [100, 101, 102, 103]
        assert {one.attempts.failures for one in site.letters.kept} == {deliveries_max}
        assert (site.position, site.ledger.parked) == (103, ())

    simulated(story)
