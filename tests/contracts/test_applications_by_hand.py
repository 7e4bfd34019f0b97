"""What an application that acknowledges by hand can rely on, on the engine of the test kit as on a real one."""

from __future__ import annotations

import pytest

from delivery import NewMessage
from delivery.metastore.policy import Order
from subscriber import ManualMessage, Reject, Retry, RetryPolicy, Subscription
from tests.applications import QUICK_SECONDS, World, made_queue


def subscribed(world: World, got: list[ManualMessage], **policy: object) -> Subscription:
    """A subscription whose listener keeps what it gets."""
    subscriber = world.subscriber()
    retry = RetryPolicy(first_seconds=QUICK_SECONDS, jitter=0, **policy)  # type: ignore[arg-type]
    subscription = subscriber.subscribe(
        world.queue_name, start="earliest", manual=True, retry=retry, listener=got.append
    )  # fmt: skip
    subscriber.start()
    return subscription


@pytest.mark.parametrize("order", ["partition", "key"])
def test_what_is_not_acknowledged_in_time_comes_again_and_what_was_does_not(world: World, order: Order) -> None:
    queue, got = made_queue(world), list[ManualMessage]()
    subscribed(world, got, order=order, ack_timeout_seconds=2 * QUICK_SECONDS)
    queue.put_many([NewMessage(body, key=b"k") for body in (b"0", b"1", b"2")])
    world.until(lambda: len(got) == 3, "all came")
    assert [got[0].ack(), got[2].ack(), got[2].ack()] == [True, True, True]
    world.until(lambda: len(got) == 4, "one comes again")
    assert [got[1].ack(), got[1].extend(1), got[1].nack()] == [False, False, False]
    assert got[3].body == b"1"
    assert got[3].ack()
    world.until_acknowledged()
    assert len(got) == 4


def test_what_is_given_back_comes_again_is_asked_for_later_or_becomes_a_dead_letter(world: World) -> None:
    queue, got = made_queue(world), list[ManualMessage]()
    subscribed(world, got, order="key")
    queue.put_many([NewMessage(body, key=body) for body in (b"again", b"later", b"never", b"fine")])
    world.until(lambda: len(got) == 4, "all came")
    again, later, never, fine = got
    assert again.nack(ValueError("no"))
    assert later.nack(Retry(after=2 * QUICK_SECONDS))
    assert never.nack(Reject("broken"))
    assert fine.ack()
    letters = world.client.dead_letters(world.queue_name, "billing")
    world.until(lambda: len(got) == 6, "two come again")
    assert [message.body for message in got[4:]] == [b"again", b"later"]
    assert [message.ack() for message in got[4:]] == [True, True]
    world.until(lambda: [one.stored.body for one in letters.letters()] == [b"never"], "given up")
    world.until_acknowledged()
    [found] = world.client.explain(world.queue_name, "billing", never.id)
    assert [one.told("last-error") for one in found.dead_letters] == ["Reject: broken"]
