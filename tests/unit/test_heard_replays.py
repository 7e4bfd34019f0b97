"""When a subscriber attaches to what was replayed to its subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
import pytest
import trio
import trio.testing

from delivery.errors import UnknownSubscription
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.request import check_request
from subscriber.attachment import Attachment
from subscriber.listeners import check_listener
from subscriber.replays import AGAIN_SECONDS, LOOK_SECONDS, Due, Replays
from subscriber.subscription import Subscription

QUEUE, REPLAYS = "orders", "orders.billing.replay"


def test_each_that_is_made_is_due_once_and_again_only_when_it_failed() -> None:
    due = Due()
    assert not due.of("orders", 0, 1.0), "nothing was replayed"
    assert due.of("orders", 5, 1.0)
    assert not due.of("orders", 5, 1000.0)
    assert due.of("invoices", 5, 1000.0), "each queue by itself"
    assert due.of("orders", 6, 1001.0), "made anew"
    due.failed("orders", 1001.0)
    assert not due.of("orders", 6, 1000.0 + AGAIN_SECONDS)
    assert due.of("orders", 6, 1001.0 + AGAIN_SECONDS)
    assert not due.of("orders", 6, 9999.0)
    due.failed("orders", 9999.0)
    assert due.of("orders", 7, 9999.0), "another one does not wait for what failed"


class Registering:
    """Attaches what it is given, or fails as often as it is told."""

    def __init__(self, attached: dict[str, Attachment], failures: int = 0) -> None:
        self.attached, self.failures = attached, failures
        self.asked: list[Subscription] = []

    async def __call__(self, subscriptions: Sequence[Subscription]) -> None:
        await trio.lowlevel.checkpoint()
        for one in subscriptions:
            self.asked.append(one)
            if self.failures:
                self.failures -= 1
                raise UnknownSubscription("gone meanwhile")
            self.attached[one.queue] = attachment(one)


def subscription(queue: str) -> Subscription:
    return Subscription("billing", check_request(queue, None, None, "latest"), (check_listener(print, "message"),))


def attachment(one: Subscription) -> Attachment:
    record = SubscriptionRecord(
        name="billing", queue=one.queue, generation="g", created_ms=1, starts={0: 0}, all_partitions=True, topics=()
    )
    return Attachment(one, record, ListenerRecord(address="127.0.0.1", port=1, token="t"))


def replayed(found: Attachment, made_ms: int) -> None:
    """As the next look at the preferences finds them."""
    found.record = msgspec.structs.replace(found.record, replayed_ms=made_ms)


@pytest.mark.parametrize("failures", [0, 1])
def test_the_listeners_of_a_subscription_hear_what_is_replayed_to_it_too(failures: int) -> None:
    async def story() -> None:
        whole = subscription(QUEUE)
        attached = {QUEUE: attachment(whole)}
        register = Registering(attached, failures)
        replays = Replays(attached, register)
        whole.stop_delivery()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(replays.run, trio.Lock())
            await trio.sleep(LOOK_SECONDS * 3)
            assert register.asked == []
            replayed(attached[QUEUE], 5)
            await trio.sleep(LOOK_SECONDS * 1.5 + failures * AGAIN_SECONDS)
            part = whole.parts[REPLAYS]
            assert len(register.asked) == 1 + failures
            assert (part.queue, part.name, part.delivering) == (REPLAYS, "billing", False)
            assert part.request.mode == "attach", "it is for the replay to make it"
            later = check_listener(cast("type", repr), "message")
            whole.listener(later.call)
            assert part.listeners == whole.listeners, "also those that come later"
            assert replays.of(attached[QUEUE]) == [attached[REPLAYS]]
            assert not replays.are_all()
            await trio.sleep(AGAIN_SECONDS * 3)
            assert len(register.asked) == 1 + failures, "once"
            del attached[QUEUE]
            assert replays.are_all(), "what is left is no reason to go on"
            nursery.cancel_scope.cancel()

    trio.run(story, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_new_one_is_waited_for_until_the_earlier_one_has_ended() -> None:
    async def story() -> None:
        attached = {QUEUE: attachment(subscription(QUEUE)), REPLAYS: attachment(subscription(REPLAYS))}
        register = Registering(attached)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Replays(attached, register).run, trio.Lock())
            replayed(attached[QUEUE], 5)
            await trio.sleep(LOOK_SECONDS * 2)
            assert register.asked == []
            del attached[REPLAYS]
            await trio.sleep(LOOK_SECONDS * 2 + AGAIN_SECONDS)
            assert [one.queue for one in register.asked] == [REPLAYS]
            nursery.cancel_scope.cancel()

    trio.run(story, clock=trio.testing.MockClock(autojump_threshold=0))
