"""Others change a subscription between the look at it and the writing: who starts looks again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delivery.errors import SubscriptionExists, UnknownSubscription
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.testing import Engine
from subscriber import Message, Subscriber
from subscriber.registration import Plan, SubscriberZooKeeper

Between = Callable[[SubscriberZooKeeper, Plan], object]


@pytest.fixture
def hoot() -> Iterator[Engine]:
    with Engine() as engine:
        engine.connect().create_queue("orders").put(b"x")
        yield engine


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Between], None]:
    """Has something done once, behind the plan and before it is carried out."""
    register = SubscriberZooKeeper.register

    def once(what: Between) -> None:
        left = [what]

        def late(self: SubscriberZooKeeper, plan: Plan, listener: ListenerRecord) -> SubscriptionRecord:
            if left:
                left.pop()(self, plan)
            return register(self, plan, listener)

        monkeypatch.setattr(SubscriberZooKeeper, "register", late)

    return once


def subscribed(hoot: Engine, got: list[bytes], **options: Any) -> Subscriber:
    def take(message: Message) -> None:
        got.append(message.body)

    subscriber = hoot.subscriber("mail")
    subscriber.subscribe("orders", start="earliest", listener=take, **options)
    return subscriber


def created(registration: SubscriberZooKeeper, plan: Plan) -> None:
    registration._catalog.create_subscription(plan.record)


def created_and_left(registration: SubscriberZooKeeper, plan: Plan) -> None:
    """By one that is dead by now."""
    created(registration, plan)
    gone = ListenerRecord(address="127.0.0.1", port=1, token="t")
    registration._catalog.attach("orders", "mail", gone)


@pytest.mark.parametrize("what", [created, created_and_left])
def test_who_does_not_mind_takes_what_somebody_else_has_created_meanwhile(
    hoot: Engine, between: Callable[[Between], None], what: Between
) -> None:
    between(what)
    got: list[bytes] = []
    with subscribed(hoot, got):
        hoot.settle()
    assert got == [b"x"]


def test_who_wants_a_new_one_is_told_that_somebody_else_was_first(
    hoot: Engine, between: Callable[[Between], None]
) -> None:
    between(created)
    with pytest.raises(SubscriptionExists):
        subscribed(hoot, [], mode="create").start()
    assert hoot.connect().subscription_info("orders", "mail").listener is None


def test_who_attaches_is_told_that_it_was_deleted_meanwhile(hoot: Engine, between: Callable[[Between], None]) -> None:
    with subscribed(hoot, []):
        hoot.settle()
    between(lambda registration, _: registration._catalog.delete_subscription("orders", "mail"))
    with pytest.raises(UnknownSubscription):
        subscribed(hoot, [], mode="attach", topics=["news"]).start()
    assert hoot.connect().subscriptions("orders") == []


def test_what_is_registered_is_of_the_queue_that_was_made_in_the_place_of_the_one_that_was_looked_at(
    hoot: Engine, between: Callable[[Between], None]
) -> None:
    client = hoot.connect()

    def made_again(*_: object) -> None:
        client.delete_queue("orders")
        client.create_queue("orders", partitions=2).put(b"y", partition=1)

    between(made_again)
    got: list[bytes] = []
    with subscribed(hoot, got):
        hoot.settle()
        hoot.advance(60)
    assert got == [b"y"], "also from a partition that the former queue did not have"
