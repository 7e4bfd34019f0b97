"""`order="key"` with real processes: keys that fail wait durably while others go on, whoever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from delivery import Client, MessageId, NewMessage
from delivery.metastore.catalog import open_catalog
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber import RetryPolicy
from tests.integration.cli.running import Hoot
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, RecordingSubscriber
from tests.integration.verdicts import judged

pytestmark = pytest.mark.integration

BY_KEY = RetryPolicy(order="key", first_seconds=0.5, factor=1)
KEYS = 20


def publish(client: Client, queue: str, rounds: int) -> dict[int, list[int]]:
    """So many messages of each key; gives the ids by key."""
    stored = client.queue(queue).put_many(
        [NewMessage(b"x", key=b"%d" % (number % KEYS)) for number in range(rounds * KEYS)]
    )
    return {key: [int(one.id) for one in stored[key::KEYS]] for key in range(KEYS)}


def state(running: Engine, queue: str) -> SubscriptionState:
    with ZooKeeperClient(running.address) as zookeeper:
        return open_catalog(zookeeper).states(queue, "recorder")[0]


def parked(running: Engine, queue: str) -> dict[bytes | None, tuple[int, ...]]:
    return {one.key: one.ids for one in state(running, queue).parked}


def check_order(published: dict[int, list[int]], delivered: list[int]) -> None:
    """First deliveries of each key rise, and all are there."""
    first = {number: at for at, number in reversed(list(enumerate(delivered)))}
    for key, ids in published.items():
        assert [number for number in ids if number not in first] == [], f"key {key}"
        assert ids == sorted(ids, key=first.__getitem__), f"key {key} came out of order"


def test_a_poison_message_holds_its_key_through_the_deaths_of_subscriber_and_host_and_no_other_key(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    client.create_queue("orders")
    published = publish(client, "orders", 50)
    poison = published[3][10]
    subscriber = RecordingSubscriber(running, "orders", tmp_path, retry=BY_KEY)
    subscriber.start(poison=poison)
    everything = KEYS * 50 - 40
    try:
        eventually(lambda: subscriber.distinct() == everything, "all but what waits for the poison", 60)
        waiting = tuple(published[3][10:])
        eventually(lambda: parked(running, "orders") == {b"3": waiting}, "it is parked durably")
        last = published[KEYS - 1][-1]
        eventually(lambda: state(running, "orders").position == last, "all that is not parked is acknowledged")
        told = judged(client, "orders", "recorder", "key_parked").observation
        assert (told.parked, told.parked_keys, told.lag) == (len(waiting), 1, 0)

        subscriber.start(poison=poison)  # killed, and another one in its place
        more = publish(client, "orders", 5)
        eventually(lambda: subscriber.distinct() == everything + 5 * KEYS - 5, "the others of what came later", 60)

        running.host.kill()
        running.host.start()
        again = publish(client, "orders", 5)
        everything += 10 * KEYS - 10
        eventually(lambda: subscriber.distinct() == everything, "the others again", 60)
        waiting += (*more[3], *again[3])
        eventually(lambda: parked(running, "orders") == {b"3": waiting}, "the same is parked", 30)
        assert not set(waiting) & set(subscriber.ids()[0])

        subscriber.start()  # a mended one
        eventually(lambda: subscriber.distinct() == everything + 50, "the key goes on", 60)
        eventually(lambda: parked(running, "orders") == {}, "nothing is parked")
        check_order({key: ids + more[key] + again[key] for key, ids in published.items()}, subscriber.ids()[0])
    finally:
        subscriber.kill()


def test_a_poison_message_becomes_a_dead_letter_and_the_rest_of_its_key_follows(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    client.create_queue("payments")
    published = publish(client, "payments", 20)
    poison = published[3][10]
    subscriber = RecordingSubscriber(
        running, "payments", tmp_path, retry=RetryPolicy(order="key", first_seconds=0.1, deliveries_max=3)
    )
    subscriber.start(poison=poison)
    try:
        eventually(lambda: subscriber.distinct() == KEYS * 20 - 1, "all but the poison", 60)
        [letter] = client.dead_letters("payments", "recorder").letters()
        assert (letter.told("failures"), int(letter.stored.key or b"0")) == ("3", 3)
        eventually(lambda: parked(running, "payments") == {}, "nothing is parked")
        published[3].remove(poison)
        check_order(published, subscriber.ids()[0])
    finally:
        subscriber.kill()


def test_a_message_that_kills_its_subscriber_is_found_and_given_up(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    client.create_queue("refunds")
    published = publish(client, "refunds", 3)
    deadly = published[7][1]
    subscriber = RecordingSubscriber(running, "refunds", tmp_path, retry=RetryPolicy(order="key", crashes_max=2))
    try:
        for _ in range(12):
            subscriber.start(deadly=deadly)
            eventually(lambda: subscriber.is_dead or subscriber.distinct() == KEYS * 3 - 1, "it dies, or is done", 60)
            if not subscriber.is_dead:
                break
        [letter] = client.dead_letters("refunds", "recorder").letters()
        assert (letter.told("id"), letter.told("crashes")) == (str(MessageId(deadly)), "2")
        assert set(subscriber.ids()[0]) == {number for ids in published.values() for number in ids} - {deadly}
    finally:
        subscriber.kill()


def test_what_is_parked_is_listed_and_comes_again_when_it_is_released(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    client.create_queue("returns")
    published = publish(client, "returns", 3)
    poison = published[3][1]
    subscriber = RecordingSubscriber(
        running, "returns", tmp_path, retry=RetryPolicy(order="key", first_seconds=3600, longest_seconds=7200)
    )
    subscriber.start(poison=poison)
    hoot = Hoot(running.address)
    try:
        eventually(
            lambda: [one.ids for _, one in client.parked("returns", "recorder")] == [tuple(published[3][1:])],
            "parked",
            60,
        )
        subscriber.start()
        [found] = hoot.json("subscription", "parked", "returns", "recorder")
        assert (found["key"], found["first"], found["messages"]) == ("3", str(MessageId(poison)), 2)
        assert (found["failures"], found["last_error"]) == (1, "ValueError: poison")
        assert "ValueError: poison" in hoot("subscription", "parked", "returns", "recorder").stdout
        told = hoot.json("subscription", "info", "returns", "recorder")
        assert (told["lag"], told["parked"], told["retry"]["order"]) == (0, 2, "key")
        assert "its key waits, again after 1h" in hoot("subscription", "info", "returns", "recorder").stdout
        assert client.release("returns", "recorder", [b"another"]) == 0
        assert "would release 1 " in hoot("subscription", "release", "returns", "recorder", "--dry-run").stdout
        assert subscriber.distinct() == KEYS * 3 - 2
        assert hoot.json("subscription", "release", "returns", "recorder", "--key", "3")["released"] == 1
        eventually(lambda: subscriber.distinct() == KEYS * 3, "it comes again", 30)
        eventually(lambda: client.parked("returns", "recorder") == [], "nothing is parked")
        check_order(published, subscriber.ids()[0])
    finally:
        subscriber.kill()
