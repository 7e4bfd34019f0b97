"""Who could not unsubscribe is attached as before, and hears of what becomes of the subscription."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delivery.errors import MetadataUnavailable, SubscriptionBusy
from delivery.metastore.catalog import Catalog
from delivery.testing import Engine
from subscriber import Message, Subscriber


@pytest.fixture
def hoot() -> Iterator[Engine]:
    with Engine() as engine:
        engine.connect().create_queue("orders", partitions=2)
        yield engine


def ignore(message: Message) -> None: ...


def joined(hoot: Engine, member: str) -> Subscriber:
    subscriber = hoot.subscriber("mail", member=member)
    subscriber.subscribe("orders", kind="shared", listener=ignore)
    subscriber.start()
    hoot.settle()
    return subscriber


def test_when_others_are_attached(hoot: Engine) -> None:
    members = [joined(hoot, "a"), joined(hoot, "b")]
    with pytest.raises(SubscriptionBusy):
        members[0].unsubscribe("orders")
    hoot.connect().delete_subscription("orders", "mail")
    hoot.settle()
    assert [one.subscriptions["orders"].state for one in members] == ["deleted", "deleted"]


def test_when_zookeeper_does_not_answer(hoot: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MetadataUnavailable("ZooKeeper does not answer")

    member = joined(hoot, "a")
    with monkeypatch.context() as failing:
        failing.setattr(Catalog, "delete_subscription", fail)
        with pytest.raises(MetadataUnavailable):
            member.unsubscribe("orders")
    hoot.connect().delete_subscription("orders", "mail")
    hoot.settle()
    assert member.subscriptions["orders"].state == "deleted"
