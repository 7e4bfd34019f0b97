"""A bound: of a thousand messages only the newest few, for each subscription its own (Hedwig's tests of it)."""

from __future__ import annotations

import pytest

from delivery import Client
from subscriber import Message, Subscriber
from tests.integration.cli.running import Hoot
from tests.integration.embedded import eventually
from tests.integration.engine import Engine

pytestmark = pytest.mark.integration


def received(running: Engine, queue: str, name: str, last: bytes, bound: int | None = None) -> list[bytes]:
    """What a subscriber gets until the last message."""
    bodies: list[bytes] = []

    def listener(message: Message) -> None:
        bodies.append(message.body)

    subscriber = Subscriber(name, zookeeper=running.address)
    subscriber.subscribe(queue, start="earliest", bound=bound, listener=listener)
    with subscriber:
        eventually(lambda: bodies[-1:] == [last], "the last message")
    return bodies


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_who_comes_late_gets_the_newest_each_subscription_as_many_as_it_wants(running: Engine, client: Client) -> None:
    queue = client.create_queue("bounded")
    queue.put_many(numbered(0, 600))
    queue.put_many(numbered(600, 1000))
    assert received(running, "bounded", "five", b"999", 5) == numbered(995, 1000)
    assert received(running, "bounded", "twenty", b"999", 20) == numbered(980, 1000)
    assert received(running, "bounded", "all", b"999") == numbered(0, 1000)
    eventually(lambda: client.subscription_info("bounded", "five").lag == 0, "its position is saved")


def test_a_bound_is_changed_and_stays_where_none_is_given(running: Engine, client: Client) -> None:
    queue = client.create_queue("updated")
    hoot = Hoot(running.address)
    made = hoot.json("subscription", "create", "updated", "mail", "--from", "earliest", "--bound", "5")
    assert made["subscription"] == "mail"
    queue.put_many(numbered(0, 100))
    assert received(running, "updated", "mail", b"99") == numbered(95, 100)
    assert hoot.json("subscription", "update", "updated", "mail", "--bound", "20")["bound"] == 20
    queue.put_many(numbered(100, 200))
    assert received(running, "updated", "mail", b"199") == numbered(180, 200)
    client.update_subscription("updated", "mail", topics=None)
    assert hoot.json("subscription", "info", "updated", "mail")["bound"] == 20
    queue.put_many(numbered(200, 300))
    assert received(running, "updated", "mail", b"299", 10) == numbered(290, 300)
    queue.put_many(numbered(300, 400))
    assert received(running, "updated", "mail", b"399", 0) == numbered(300, 400)
