"""What an application can rely on, on the engine of the test kit as on a real one: messages, failures, filters."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
import trio

from delivery import NewMessage
from delivery.metastore.policy import Order
from subscriber import Event, Message, Retry, RetryPolicy
from subscriber.async_sqlite import AsyncSQLitePositions
from subscriber.effects import exactly_once
from subscriber.listeners import Concurrency
from tests.applications import QUICK_SECONDS, Handler, World, made_queue, numbered, run

QUICK = RetryPolicy(first_seconds=QUICK_SECONDS, jitter=0)
BY_KEY = RetryPolicy(order="key", first_seconds=QUICK_SECONDS, jitter=0)


def test_messages_come_in_the_order_of_their_partition_with_all_that_they_have(world: World) -> None:
    queue = made_queue(world, partitions=3)
    got: list[Message] = []
    subscriber = world.subscriber()
    subscriber.subscribe(world.queue_name, listener=got.append)
    subscriber.start()
    receipts = queue.put_many([NewMessage(body, partition=n % 3) for n, body in enumerate(numbered(30))])
    one = queue.put(b"whole", key=b"k", topic="t", headers={"h": b"v"}, partition=0)
    world.until(lambda: len(got) == 31, "all came")
    for partition in range(3):
        ids = [message.id for message in got if message.partition == partition]
        assert ids == sorted(ids)
    assert {(m.id, m.partition) for m in got} == {(r.id, r.partition) for r in [*receipts, one]}
    whole = next(message for message in got if message.id == one.id)
    assert (whole.body, whole.key, whole.topic, whole.headers) == (b"whole", b"k", "t", {"h": b"v"})
    world.until_acknowledged()


def test_a_failure_holds_its_partition_until_the_message_is_handled(world: World) -> None:
    queue, handler = made_queue(world, 2), Handler({b"1": 2})
    run(world, handler, retry=QUICK)
    queue.put_many([NewMessage(body, partition=0) for body in numbered(4)])
    queue.put(b"other", partition=1)
    world.until(lambda: len(handler.bodies) == 5, "all is handled")
    assert [body for body in handler.bodies if body != b"other"] == numbered(4)
    assert Counter(handler.calls) == {b"0": 1, b"1": 3, b"2": 1, b"3": 1, b"other": 1}


def test_with_the_order_of_keys_only_the_key_waits_and_keeps_its_order(world: World) -> None:
    queue, handler = made_queue(world), Handler({b"a0": 1})
    run(world, handler, retry=BY_KEY)
    for number in range(3):
        queue.put(b"a%d" % number, key=b"a")
        queue.put(b"b%d" % number, key=b"b")
    world.until(lambda: len(handler.bodies) == 6, "all is handled")
    assert handler.bodies == [*numbered(3, b"b"), *numbered(3, b"a")]
    assert Counter(handler.calls)[b"a0"] == 2


@pytest.mark.parametrize("concurrency", [3, "auto"])
@pytest.mark.parametrize("order", ["partition", "key"])
def test_several_callbacks_at_a_time_keep_each_key_in_order(
    world: World, concurrency: Concurrency, order: Order
) -> None:
    queue, handler = made_queue(world, 2), Handler({b"a0": 1})
    policy = RetryPolicy(order=order, first_seconds=QUICK_SECONDS, jitter=0)
    subscription = run(world, handler, retry=policy, concurrency=concurrency)
    whole = world.made[0].subscribe(f"{world.queue_name}-*", concurrency=concurrency, listener=handler)
    world.client.create_queue(f"{world.queue_name}-more").put(b"more")
    for number in range(5):
        queue.put_many([NewMessage(b"%s%d" % (key, number), key=key) for key in (b"a", b"b", b"c")])
    world.until(lambda: len(handler.bodies) == 16, "all is handled")
    for key in (b"a", b"b", b"c"):
        assert [body for body in handler.bodies if body[:1] == key] == numbered(5, key)
    assert [one.concurrency for one in (subscription, *whole.parts.values())] == [concurrency] * 2
    world.until_acknowledged()


def test_what_is_parked_is_listed_and_comes_at_once_when_it_is_released(world: World) -> None:
    queue, handler = made_queue(world), Handler({b"a0": 1})
    run(world, handler, retry=RetryPolicy(order="key", first_seconds=600))
    queue.put(b"a0", key=b"a")
    queue.put(b"a1", key=b"a")
    world.until(lambda: bool(world.client.parked(world.queue_name, "billing")), "it is parked")
    world.until(lambda: len(world.client.parked(world.queue_name, "billing")[0][1].ids) == 2, "both are")
    assert handler.bodies == []
    assert world.client.release(world.queue_name, "billing", [b"a"]) == 1
    world.until(lambda: handler.bodies == [b"a0", b"a1"], "they came in order")


def test_what_is_rejected_or_failed_too_often_becomes_a_dead_letter_and_can_be_sent_back(world: World) -> None:
    queue, handler = made_queue(world), Handler({b"bad": 99}, rejected=(b"junk",))
    run(world, handler, retry=RetryPolicy(first_seconds=QUICK_SECONDS / 10, jitter=0, deliveries_max=3))
    for body in (b"before", b"junk", b"bad", b"after"):
        queue.put(body, key=b"k", headers={"h": b"v"})
    world.until(lambda: handler.bodies == [b"before", b"after"], "the others go on")
    letters = world.client.dead_letters(world.queue_name, "billing")
    junk, bad = letters.letters()
    assert (junk.stored.body, junk.told("reason"), junk.told("last-error")) == (
        b"junk", "rejected", "Reject: it is junk"
    )  # fmt: skip
    assert (bad.stored.body, bad.told("failures"), bad.told("first-error")) == (b"bad", "3", "ValueError: not now")
    assert bad.original().headers == {"h": b"v"}
    assert Counter(handler.calls) == {b"before": 1, b"junk": 1, b"bad": 3, b"after": 1}
    handler.rejected = ()
    letters.redrive([junk])
    world.until(lambda: handler.bodies[-1] == b"junk", "it came again")
    assert [letter.stored.body for letter in letters.letters()] == [b"bad"]
    world.until_acknowledged()


def test_a_listener_says_when_a_message_is_to_come_again(world: World) -> None:
    queue, handler = made_queue(world), Handler()
    times: list[bytes] = []

    def once(message: Message) -> Retry | None:
        times.append(message.body)
        return Retry(after=QUICK_SECONDS) if len(times) == 1 else None

    subscription = run(world, handler, retry=RetryPolicy(first_seconds=600))
    subscription.listener(once)
    queue.put(b"x")
    world.until(lambda: len(times) == 2, "it came again")
    world.until_acknowledged()
    assert handler.calls == [b"x", b"x"], "all listeners are called again"


def test_an_async_listener_that_takes_too_long_is_cancelled_and_has_failed(world: World) -> None:
    queue = made_queue(world)
    handled, events = [], list[Event]()

    async def slow_at_first(message: Message) -> None:
        if not events:
            await trio.sleep(3600)
        handled.append(message.body)

    subscriber = world.subscriber()
    subscriber.on_event(lambda event: events.append(event) if event.kind == "failed" else None)
    policy = RetryPolicy(first_seconds=QUICK_SECONDS, timeout_seconds=QUICK_SECONDS)
    subscriber.subscribe(world.queue_name, start="earliest", retry=policy, listener=slow_at_first)
    subscriber.start()
    queue.put(b"x")
    world.until(lambda: handled == [b"x"], "the second time is quick")
    assert [type(event.error) for event in events] == [TimeoutError]


def test_an_async_listener_has_its_effect_once_though_it_fails_and_hears_of_it_again(
    world: World, tmp_path: Path
) -> None:
    queue, database = made_queue(world), tmp_path / "ledger.db"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE charges (body BLOB)")
    calls: list[bytes] = []

    @exactly_once(AsyncSQLitePositions(database, "billing"))
    async def charge(message: Message, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO charges VALUES (?)", [message.body])
        calls.append(message.body)
        await trio.sleep(0.001)
        if calls == [b"0", b"1"]:
            raise ValueError("not now")

    subscriber = world.subscriber()
    subscriber.subscribe(world.queue_name, start="earliest", retry=QUICK, listener=charge)
    subscriber.start()
    queue.put_many(numbered(4))
    world.until(lambda: calls == [b"0", b"1", *numbered(4)[1:]], "all is handled")
    world.until_acknowledged()
    world.client.seek(world.queue_name, "billing", "earliest", force=True)
    world.until_acknowledged()
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert [row[0] for row in connection.execute("SELECT body FROM charges ORDER BY rowid")] == numbered(4)


def test_a_list_that_fails_comes_again_whole(world: World) -> None:
    queue = made_queue(world)
    lists: list[list[bytes]] = []

    def take(messages: list[Message]) -> None:
        lists.append([message.body for message in messages])
        if len(lists) == 1:
            raise ValueError("not now")

    queue.put_many(numbered(5))
    subscriber = world.subscriber()
    subscriber.subscribe(world.queue_name, start="earliest", retry=QUICK, batch_listener=take)
    subscriber.start()
    world.until(lambda: len(lists) == 2, "it came again")
    assert lists == [numbered(5), numbered(5)]


def test_topics_filter_and_where_choose_and_what_is_left_out_is_acknowledged(world: World) -> None:
    queue, handler = made_queue(world), Handler()
    subscription = run(
        world, handler, topics="eu.*", filter="body.total >= 100", where=lambda message: message.key != b"test"
    )
    for topic, total, key in (("eu.de", 200, None), ("us.ny", 200, None), ("eu.fr", 50, None), ("eu.it", 300, b"test")):
        queue.put(b'{"total": %d, "at": "%s"}' % (total, topic.encode()), topic=topic, key=key)
    world.until_acknowledged()
    assert [b"eu.de" in body for body in handler.bodies] == [True]
    world.client.update_subscription(world.queue_name, subscription.name, topics=None, filter=None)

    def comes(topic: str) -> bool:
        queue.put(b'{"at": "%s"}' % topic.encode(), topic=topic)
        world.until_acknowledged()
        return any(topic.encode() in body for body in handler.bodies)

    world.until(lambda: comes("us.ny"), "the running subscription follows")
