"""Cases of Hedwig's own tests of its subscriptions (Apache-2.0), written anew: inputs and outcomes are theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delivery import Queue
from delivery.errors import SubscriptionBusy, SubscriptionExists, UnknownSubscription
from delivery.testing import Engine
from subscriber import Message, Subscriber, Subscription


@pytest.fixture
def hoot() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def queue(hoot: Engine) -> Queue:
    return hoot.connect().create_queue("t")


class Taken:
    """A listener that acknowledges nothing by itself where that is up to the application."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def __call__(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[int]:
        return [int(one.body) for one in self.messages]


def attached(hoot: Engine, taken: Taken, **options: Any) -> tuple[Subscriber, Subscription]:
    subscriber = hoot.subscriber("mail", force=options.pop("force", False))
    subscription = subscriber.subscribe("t", listener=taken, **options)
    subscriber.start()
    return subscriber, subscription


def put_each(queue: Queue, *numbers: int, topic: str = "") -> None:
    """Each a batch of its own."""
    for number in numbers:
        queue.put(b"%d" % number, topic=topic)


def test_a_hundred_messages_come_in_order(hoot: Engine, queue: Queue) -> None:
    taken = Taken()
    attached(hoot, taken)
    put_each(queue, *range(100))
    hoot.settle()
    assert taken.bodies == list(range(100))


@pytest.mark.parametrize("awaited", ["each", "together"])
def test_the_ids_that_thirty_publishes_give_are_those_that_are_delivered(
    hoot: Engine, queue: Queue, awaited: str
) -> None:
    taken = Taken()
    attached(hoot, taken)
    if awaited == "each":
        stored = [queue.put(b"%d" % number).id for number in range(30)]
    else:
        with queue.publisher() as publisher:
            receipts = [publisher.put(b"%d" % number) for number in range(30)]
        stored = [receipt.result().id for receipt in receipts]
    hoot.settle()
    assert [one.id for one in taken.messages] == stored
    assert len(set(stored)) == 30


def test_who_creates_needs_that_there_is_none_and_who_attaches_that_there_is_one(hoot: Engine, queue: Queue) -> None:
    taken = Taken()
    with pytest.raises(UnknownSubscription):
        attached(hoot, taken, mode="attach")
    attached(hoot, taken, mode="create")[0].stop()
    with pytest.raises(SubscriptionExists):
        attached(hoot, taken, mode="create")
    put_each(queue, 1)
    attached(hoot, taken, mode="attach")
    hoot.settle()
    assert taken.bodies == [1]


def test_ten_messages_are_held_while_delivery_is_stopped_and_then_come(hoot: Engine, queue: Queue) -> None:
    taken = Taken()
    _, subscription = attached(hoot, taken)
    put_each(queue, *range(10))
    hoot.settle()
    subscription.stop_delivery()
    put_each(queue, *range(10, 20))
    hoot.settle()
    assert taken.bodies == list(range(10))
    subscription.start_delivery()
    subscription.start_delivery()
    hoot.settle()
    assert taken.bodies == list(range(20))


def test_who_forces_gets_the_messages_and_who_had_the_subscription_is_told(hoot: Engine, queue: Queue) -> None:
    first, second = Taken(), Taken()
    subscriber, subscription = attached(hoot, first)
    put_each(queue, 1)
    hoot.settle()
    with pytest.raises(SubscriptionBusy):
        attached(hoot, second)
    attached(hoot, second, force=True)
    hoot.settle()
    put_each(queue, 2)
    hoot.settle()
    assert (first.bodies, second.bodies, subscription.state) == ([1], [2], "taken_over")
    with pytest.raises(SubscriptionBusy):
        subscriber.run()


@pytest.mark.parametrize("window", [10, 5, 15])
def test_no_more_than_a_window_is_out_and_each_acknowledgement_lets_one_more_through(
    hoot: Engine, queue: Queue, window: int
) -> None:
    taken = Taken()
    attached(hoot, taken, manual=True, flow={"window_messages": window})
    put_each(queue, *range(2 * window))
    hoot.settle()
    assert taken.bodies == list(range(window))
    for number in range(window):
        taken.messages[number].ack()
        hoot.settle()
        assert taken.bodies == list(range(window + number + 1))


@pytest.mark.parametrize("gap", [5, 10, 15], ids=["half a window", "a window", "one and a half"])
def test_what_a_filter_leaves_out_takes_no_room_in_the_window(hoot: Engine, queue: Queue, gap: int) -> None:
    window, taken = 10, Taken()
    attached(hoot, taken, manual=True, flow={"window_messages": window}, topics=["wanted"])
    for number in range(2 * window):
        put_each(queue, number, topic="wanted")
        put_each(queue, *range(1000, 1000 + gap), topic="other")
    hoot.settle()
    assert taken.bodies == list(range(window))
    for message in list(taken.messages):
        message.ack()
    hoot.settle()
    assert taken.bodies == list(range(2 * window))
    for message in taken.messages:
        message.ack()
    hoot.settle()
    hoot.assert_idle("t", "mail")


@pytest.mark.parametrize("chosen", [{"topics": ["odd"]}, {"filter": "parity = 'odd'"}])
def test_of_a_hundred_messages_a_filter_on_the_host_lets_fifty_through(
    hoot: Engine, queue: Queue, chosen: dict[str, Any]
) -> None:
    taken = Taken()
    attached(hoot, taken, **chosen)
    for number in range(100):
        parity = "odd" if number % 2 else "even"
        queue.put(b"%d" % number, topic=parity, headers={"parity": parity.encode()})
    hoot.settle()
    assert taken.bodies == list(range(1, 100, 2))
    hoot.assert_idle("t", "mail")


def test_of_a_thousand_messages_each_subscription_gets_as_many_of_the_newest_as_it_wants(
    hoot: Engine, queue: Queue
) -> None:
    put_each(queue, *range(1000))
    for name, bound, first in (("five", 5, 995), ("twenty", 20, 980), ("all", None, 0)):
        taken = Taken()
        subscriber = hoot.subscriber(name)
        subscriber.subscribe("t", start="earliest", bound=bound, listener=taken)
        with subscriber:
            hoot.settle()
        assert taken.bodies == list(range(first, 1000))
