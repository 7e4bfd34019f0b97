"""A queue to be compacted in place, and what is to be left of it."""

from __future__ import annotations

from typing import Any

from delivery import Client, NewMessage
from delivery.model import Message
from subscriber import Subscriber
from tests.integration.embedded import eventually

PARTITIONS, KEYS, COUNT = 3, 7, 120
SECONDS = 120.0


def fill(client: Client, queue: str, **settings: Any) -> None:
    """Every key several times; `k3` is deleted, and all have heard of that; `k4` is, too, and nobody has."""
    stored = client.create_queue(queue, partitions=PARTITIONS, **settings)
    client.create_subscription(queue, "mine", start="earliest")
    for at in range(0, COUNT, 24):
        stored.put_many([
            NewMessage(b"%d" % n, key=b"k%d" % (n % KEYS), topic=f"t{n % 2}", headers={"n": b"%d" % n})
            for n in range(at, at + 24)
        ])  # fmt: skip
    stored.put(b"alone", partition=1)
    stored.put(b"", key=b"k3")
    stored.put_many([NewMessage(b"end", partition=n) for n in range(PARTITIONS)])
    client.seek(queue, "mine", "latest")
    stored.put(b"fresh", key=b"k1")
    stored.put(b"", key=b"k4")


def messages(client: Client, queue: str) -> list[Message]:
    return list(client.queue(queue).scanner())


def said(found: list[Message]) -> set[tuple[int, int, bytes, bytes | None, str, bytes]]:
    return {(one.partition, one.number, one.body, one.key, one.topic, one.header_block) for one in found}


def newest(found: list[Message]) -> list[Message]:
    """What is to be left."""
    latest = {one.key: one for one in sorted(found, key=lambda one: one.number)}
    return [one for one in found if one.key is None or (latest[one.key] is one and one.key != b"k3")]


def check(client: Client, queue: str, before: list[Message]) -> None:
    assert said(messages(client, queue)) == said(newest(before))
    assert f"{queue}.compacting" not in client.queues()
    assert not client.queue_record(queue).settings.closed


def goes_on(client: Client, address: str, queue: str, *more: bytes) -> None:
    """Its subscription with what it has not heard, and the queue with what is published."""
    client.queue(queue).put(b"new", key=b"k1")
    heard: list[bytes] = []
    subscriber = Subscriber("mine", address)
    subscriber.subscribe(queue, listener=lambda one: heard.append(one.body))
    with subscriber:
        eventually(lambda: len(heard) >= 3 + len(more), "what it had not heard comes", SECONDS)
        eventually(lambda: client.subscription_info(queue, "mine").lag == 0, "and no more", SECONDS)
    assert sorted(heard) == sorted([b"", b"fresh", b"new", *more])
