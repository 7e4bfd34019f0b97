"""`hoot queue copy`, with real hosts: a queue that is published to and delivered from becomes another one."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from delivery import Client, Message
from delivery.errors import InvalidRequest, QueueClosed, QueueExists, SubscriptionExists
from tests.integration.cli.running import SECONDS, Child, Hoot
from tests.integration.embedded import eventually
from tests.saving import is_saved

pytestmark = pytest.mark.integration


@pytest.fixture
def filled(client: Client, queue: str) -> str:
    """A queue with keys, topics and headers in three partitions, whose subscription `mine` has heard two messages."""
    client.create_subscription(queue, "mine")
    client.queue(queue).put(b"heard", partition=0)
    client.queue(queue).put(b"too", partition=0)
    for number in range(8):
        client.queue(queue).put(b"%d" % number, key=b"k%d" % (number % 4), topic=f"t{number % 2}", headers={"h": b"h"})
    return queue


def messages(client: Client, queue: str) -> list[Message]:
    with client.queue(queue).scanner() as scanner:
        return [
            Message(one.number, one.body, one.topic, one.key, one.partition, "", one.header_block) for one in scanner
        ]


def listen(client: Client, hoot: Hoot, queue: str, limit: int) -> list[str]:
    said = hoot("subscribe", queue, "--name", "mine", "--format", "body", "--limit", str(limit)).stdout.split()
    eventually(lambda: client.subscription_info(queue, "mine").listener is None, "detached", SECONDS)
    return said


def test_a_queue_goes_on_as_another_one_with_all_that_it_has(client: Client, hoot: Hoot, filled: str) -> None:
    copy, target = ["queue", "copy", filled, f"{filled}-2"], f"{filled}-2"
    assert len(listen(client, hoot, filled, 10)) == 10
    eventually(lambda: is_saved(client, filled, "mine"), "its position is saved", SECONDS)
    client.create_snapshot(filled, "mine", "then")
    assert hoot.json(*copy, "--dry-run")["left"] == 10
    assert target not in client.queues()
    assert "copied 10 messages" in hoot(*copy).stdout
    with pytest.raises(QueueClosed):
        client.queue(target).put(b"too early")

    for number in range(3):
        client.queue(filled).put(b"later %d" % number, partition=0)
    done = hoot.json(*copy)
    assert (done["messages"], done["left"], done["switched"]) == (3, 0, False)
    assert hoot.refused(*copy, "--switch", status=2)["error"] == "bad_use"
    client.queue(filled).put(b"last", partition=2)
    done = hoot.json(*copy, "--switch", "--yes")
    assert (done["messages"], done["subscriptions"], done["switched"]) == (1, ["mine"], True)

    assert messages(client, target) == messages(client, filled)
    assert hoot.json("queue", "info", filled)["closed"]
    told = hoot.refused("publish", filled, "too late")
    assert (told["error"], "--open" in told["hint"]) == ("queue_closed", True)
    client.queue(target).put(b"new", partition=1)
    assert set(client.snapshots(target, "mine")) == {"then"}
    assert client.snapshots(target, "mine")["then"].positions == client.snapshots(filled, "mine")["then"].positions
    assert sorted(listen(client, hoot, target, 5)) == sorted(["later", "0", "later", "1", "later", "2", "last", "new"])


class BrokeOff(Exception):
    """As if the process had been killed."""


def after(pieces: int) -> Callable[[int, int], None]:
    """An `advance` that breaks off at some piece."""
    left = pieces

    def advance(_: int, __: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise BrokeOff

    return advance


@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_a_copy_that_broke_off_loses_and_doubles_nothing(client: Client, filled: str, pieces: int) -> None:
    with pytest.raises(BrokeOff):
        client.copy_queue(filled, client, f"{filled}.2").bring(after(pieces))
    for partition in range(3):
        client.queue(filled).put(b"more", partition=partition)
    with pytest.raises(BrokeOff):
        client.copy_queue(filled, client, f"{filled}.2").switch(after(pieces))
    client.copy_queue(filled, client, f"{filled}.2").switch()
    assert messages(client, f"{filled}.2") == messages(client, filled)


def test_what_cannot_be_copied_is_refused_before_anything_is_done(client: Client, hoot: Hoot, filled: str) -> None:
    other = f"{filled}.other"
    client.create_queue(other, partitions=3)
    with pytest.raises(QueueExists, match="no copy of"):
        client.copy_queue(filled, client, other)
    with client.transaction() as transaction:
        transaction.publish(other, b"in a transaction")
    with pytest.raises(InvalidRequest, match="transactions"):
        client.copy_queue(other, client, f"{other}.2").bring()

    copy = client.copy_queue(filled, client, f"{filled}.2")
    copy.bring()
    with Child("subscribe", filled, "--name", "mine", zookeeper=hoot.zookeeper) as child:
        child.says("heard")
        refused = hoot.refused("queue", "copy", filled, f"{filled}.2", "--switch", "--yes")
        assert refused["error"] == "subscription_busy"
        assert child.end(signal.SIGINT) == 130
    client.create_subscription(f"{filled}.2", "mine")
    with pytest.raises(SubscriptionExists):
        client.copy_queue(filled, client, f"{filled}.2").switch(force=True)
    client.queue(filled).put(b"still open")
    client.delete_subscription(f"{filled}.2", "mine")
    client.copy_queue(filled, client, f"{filled}.2").switch(force=True)
    with pytest.raises(InvalidRequest, match="ended"):
        client.copy_queue(filled, client, f"{filled}.2")
