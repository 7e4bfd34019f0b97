"""What is deleted and created again, a subscription or its queue, is another one, whoever hears of that how late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delivery.errors import UnknownSubscription
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.queues import QueueManager
from delivery.metastore.records import ListenerRecord
from delivery.model import QueueSettings
from delivery.testing import Engine
from subscriber import Subscriber
from tests.unit.test_registering_at_once import subscribed


@pytest.fixture
def hoot() -> Iterator[Engine]:
    with Engine() as engine:
        queue = engine.connect().create_queue("orders", partitions=2)
        for number in range(3):
            queue.put(b"m%d" % number, partition=0)
        yield engine


def started(hoot: Engine, got: list[bytes], **options: Any) -> Subscriber:
    subscriber = subscribed(hoot, got, **options)
    subscriber.start()
    hoot.settle()
    hoot.advance(5)
    return subscriber


def made_again(hoot: Engine) -> None:
    client = hoot.connect()
    client.delete_subscription("orders", "mail")
    client.create_subscription("orders", "mail", start="earliest")


def is_over(hoot: Engine, subscriber: Subscriber) -> bool:
    """Whether it was told that its subscription was deleted, and holds nothing of the new one."""
    found = subscriber.subscriptions["orders"]
    info = hoot.connect().subscription_info("orders", "mail")
    return (found.state, type(found.error), info.listener) == ("deleted", UnknownSubscription, None)


def positions(hoot: Engine) -> list[int]:
    return [int(one.position) for one in hoot.connect().subscription_info("orders", "mail").partitions]


@pytest.mark.parametrize("partitions", [None, [0]])
def test_what_was_handled_for_the_former_one_is_not_acknowledged_to_the_new_one(
    hoot: Engine, partitions: list[int] | None
) -> None:
    got: list[bytes] = []
    subscriber = started(hoot, got, partitions=partitions)
    assert got == [b"m0", b"m1", b"m2"]
    made_again(hoot)
    hoot.settle()
    hoot.advance(60)
    assert (is_over(hoot, subscriber), positions(hoot)) == (True, [0, 0])
    started(hoot, got)
    assert got == [b"m0", b"m1", b"m2"] * 2


def test_nor_when_it_is_made_again_while_its_subscriber_takes_its_place_again(
    hoot: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber = started(hoot, [])
    attach, left = Catalog.attach, [made_again]

    def late(self: Catalog, *place: Any, **options: Any) -> None:
        if left:
            left.pop()(hoot)
        attach(self, *place, **options)

    monkeypatch.setattr(Catalog, "attach", late)
    catalog = hoot.catalog_of(hoot.session())
    held = catalog.listener("orders", "mail")
    assert held is not None
    catalog.detach("orders", "mail", held)  # as the end of its session does
    hoot.settle()
    hoot.advance(60)
    assert (is_over(hoot, subscriber), positions(hoot)) == (True, [0, 0])


def deleted(catalog: Catalog) -> None:
    catalog.delete_queue("orders")


def replaced(catalog: Catalog) -> None:
    catalog.replace_queue("orders", catalog.queue("orders").generation, QueueSettings(), "")


@pytest.mark.parametrize(("end", "last"), [(deleted, "delete_queue"), (replaced, "update_queue")])
def test_who_subscribes_while_the_queue_ends_is_told_and_leaves_nothing(
    hoot: Engine, monkeypatch: pytest.MonkeyPatch, end: Callable[[Catalog], None], last: str
) -> None:
    """What belongs to the queue was deleted by then, and its record is still there."""
    ending, subscribers = getattr(QueueManager, last), list[Subscriber]()

    def late(*args: Any) -> object:
        if not subscribers:
            subscribers.append(started(hoot, []))
        return ending(*args)

    monkeypatch.setattr(QueueManager, last, late)
    catalog = hoot.catalog_of(hoot.session())
    end(catalog)
    assert catalog.attached_queues() == [] or catalog.seats(["orders"]) == [{}]
    if catalog.queues() == []:
        hoot.connect().create_queue("orders")
    hoot.settle()
    assert catalog.subscriptions("orders") == []
    assert subscribers[0].subscriptions["orders"].state == "deleted"


def test_nobody_attaches_to_what_is_left_of_an_earlier_queue(hoot: Engine) -> None:
    started(hoot, []).stop()
    catalog = hoot.catalog_of(hoot.session())
    left = catalog.subscription("orders", "mail")
    assert left is not None
    catalog.delete_queue("orders")
    catalog.create_queue("orders", QueueSettings())
    catalog.managers.subscriptions.create_subscription_data(left)
    with pytest.raises(UnknownSubscription, match="earlier queue"):
        catalog.attach("orders", "mail", ListenerRecord(address="127.0.0.1", port=1, token="t"))
