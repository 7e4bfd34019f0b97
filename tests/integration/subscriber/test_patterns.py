"""Subscriptions to all queues whose names match a pattern, now and later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delivery import Client, connect
from delivery.config import HostConfig
from delivery.errors import InvalidRequest, UnknownSubscription
from subscriber import Message, Subscriber, Subscription
from tests.integration.embedded import eventually
from tests.integration.hosts import RunningHost

pytestmark = pytest.mark.integration


class Heard:
    """A listener that keeps what it hears, as queue and body."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, message: Message) -> None:
        self.seen.append((message.queue, message.body.decode()))


@pytest.fixture
def client(zookeeper_hosts: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    config = HostConfig(zookeeper=zookeeper_hosts, data=tmp_path_factory.mktemp("data"), grace_seconds=1.0)
    with RunningHost(config), connect(zookeeper_hosts) as client:
        yield client


def put(client: Client, queue: str, body: str) -> None:
    client.queue(queue).put(body.encode())


def test_each_queue_that_matches_is_subscribed_to_and_new_ones_from_their_first_message_on(
    client: Client, zookeeper_hosts: str
) -> None:  # fmt: skip
    for name in ("orders.eu", "orders.us", "invoices.eu", "orders.eu.audit.dlq"):
        client.create_queue(name)
        put(client, name, "before")
    subscriber, heard = Subscriber("audit", zookeeper_hosts), Heard()
    pattern = subscriber.subscribe("orders.*", start="latest")
    pattern.listener(heard)
    with subscriber:
        assert (sorted(pattern.parts), pattern.state) == (["orders.eu", "orders.us"], "attached")
        put(client, "orders.eu", "one")
        client.create_queue("orders.jp")
        put(client, "orders.jp", "two")
        put(client, "invoices.eu", "no")
        eventually(lambda: len(heard.seen) == 2, "the new queue is found by itself")
        assert sorted(heard.seen) == [("orders.eu", "one"), ("orders.jp", "two")]

        client.delete_queue("orders.jp")
        eventually(lambda: pattern.parts["orders.jp"].state == "deleted", "its subscription is over")
        client.create_queue("orders.jp")
        put(client, "orders.jp", "three")
        eventually(lambda: ("orders.jp", "three") in heard.seen, "a queue that was made anew is a new one")
    assert pattern.state == "stopped"
    assert client.subscriptions("orders.us") == ["audit"], "the durable state stays"
    subscriber.unsubscribe("orders.*")
    assert [client.subscriptions(name) for name in ("orders.eu", "orders.us", "orders.jp")] == [[], [], []]
    with pytest.raises(UnknownSubscription, match=r"orders\.\*"):
        Subscriber("audit", zookeeper_hosts).unsubscribe("orders.*")


def test_it_may_begin_before_there_is_any_queue_and_share_them_with_other_members(
    client: Client, zookeeper_hosts: str
) -> None:  # fmt: skip
    heard = {name: Heard() for name in "ab"}
    members = [Subscriber("audit", zookeeper_hosts, member=name) for name in "ab"]
    for member, one in zip(members, heard.values(), strict=True):
        member.subscribe("new.*", kind="shared", listener=one)
    with members[0], members[1]:
        queue = client.create_queue("new.one", partitions=2)
        parts = [member.subscriptions["new.*"].parts for member in members]
        eventually(lambda: [part.state for one in parts for part in one.values()] == ["attached"] * 2, "both find it")
        eventually(
            lambda: set(client.subscription_info("new.one", "audit").holders.values()) == {"a", "b"},
            "each gets a partition",
        )
        for partition in (0, 1):
            queue.put(b"x", partition=partition)
        eventually(lambda: [len(one.seen) for one in heard.values()] == [1, 1], "both hear of it")


def states(pattern: Subscription) -> dict[str, str]:
    return {queue: part.state for queue, part in pattern.parts.items()}


def test_a_subscription_that_an_operator_deleted_does_not_come_back(client: Client, zookeeper_hosts: str) -> None:
    client.create_queue("orders.eu")
    subscriber, heard = Subscriber("audit", zookeeper_hosts), Heard()
    pattern = subscriber.subscribe("orders.*", listener=heard)
    with subscriber:
        client.delete_subscription("orders.eu", "audit")
        eventually(lambda: pattern.parts["orders.eu"].state == "deleted", "it hears of it")
        client.create_queue("orders.us")
        eventually(lambda: states(pattern).get("orders.us") == "attached", "the next look finds a new queue")
        assert client.subscriptions("orders.eu") == [], "and has passed the other one over"
        put(client, "orders.us", "on")
        eventually(lambda: heard.seen == [("orders.us", "on")], "the others go on")


def test_what_can_be_wrong_with_a_pattern(zookeeper_hosts: str) -> None:
    subscriber = Subscriber("audit", zookeeper_hosts)
    with pytest.raises(InvalidRequest, match="only of a single one"):
        subscriber.subscribe("orders.*", partitions=[1])
    with pytest.raises(InvalidRequest, match="no queue name"):
        subscriber.subscribe("orders/*")
    with pytest.raises(InvalidRequest, match="more than 249"):
        subscriber.subscribe("*" * 250)
