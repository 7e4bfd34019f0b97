"""What an application cannot ask for, on the engine of the test kit as on a real one: typed errors, nothing changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from delivery.errors import (
    Closed,
    ConfigError,
    HootError,
    InvalidRequest,
    MessageTooLarge,
    QueueExists,
    SubscriptionExists,
    UnknownPartition,
    UnknownQueue,
    UnknownSubscription,
)
from subscriber import Message, RetryPolicy
from tests.applications import World

LONG = "q" * 300


def ignore(message: Message) -> None: ...


def generator(message: Message) -> Any:
    yield message


async def asynchronous(message: Message) -> bool:
    return True


def subscribing(**options: Any) -> Callable[[World], object]:
    """Subscribing with these options, up to the start."""

    def subscribe(world: World) -> None:
        subscriber = world.subscriber("another")
        subscriber.subscribe(world.queue_name, **{"start": "earliest", "listener": ignore, **options})
        subscriber.start()

    return subscribe


def policy(**options: Any) -> Callable[[World], object]:
    return subscribing(retry=RetryPolicy(**options))


def creating(**settings: Any) -> Callable[[World], object]:
    return lambda world: world.client.create_queue(f"{world.queue_name}-x", **settings)


def putting(*body: Any, **options: Any) -> Callable[[World], object]:
    return lambda world: world.client.queue(world.queue_name).put(*(body or (b"x",)), **options)


def seeking(to: Any, **options: Any) -> Callable[[World], object]:
    return lambda world: world.client.seek(world.queue_name, "billing", to, **options)


REFUSED: dict[str, tuple[Callable[[World], object], type[Exception], str]] = {
    # queues
    "queue name": (lambda world: world.client.create_queue("a/b"), InvalidRequest, "no queue name"),
    "long queue name": (lambda world: world.client.create_queue(LONG), InvalidRequest, "1 to 249"),
    "queue that exists": (lambda world: world.client.create_queue(world.queue_name), QueueExists, "already"),
    "no partitions": (creating(partitions=0), InvalidRequest, "partitions must be 1 to"),
    "many partitions": (creating(partitions=40_000), InvalidRequest, "partitions must be 1 to"),
    "setting": (creating(partition=3), InvalidRequest, "no setting partition"),
    "type of a setting": (creating(partitions="3"), InvalidRequest, "cannot be"),
    "durability": (creating(durability="tape"), InvalidRequest, "durability|cannot be"),
    "other partitions": (
        lambda world: world.client.update_queue(world.queue_name, partitions=9), InvalidRequest, "keeps its 2"
    ),
    "layout": (creating(layout="columns"), InvalidRequest, "layout|cannot be"),
    "another layout": (
        lambda world: world.client.update_queue(world.queue_name, layout="rows"), InvalidRequest, "keeps its layout"
    ),
    "queue that is not there": (lambda world: world.client.queue("nobodys"), UnknownQueue, "no queue 'nobodys'"),
    # messages
    "text": (putting("text"), TypeError, "encode it"),
    "partition": (putting(partition=2), UnknownPartition, "partitions 0 to 1, not 2"),
    "large body": (putting(b"x" * 1_100_000), MessageTooLarge, "takes up to"),
    "large key": (putting(key=b"k" * 40_000), MessageTooLarge, "a key of"),
    "topic": (putting(topic="no topic"), InvalidRequest, "no topic name"),
    "timeout": (putting(timeout=0), InvalidRequest, "timeout"),
    "publisher": (
        lambda world: world.client.queue(world.queue_name).publisher(in_flight=0), InvalidRequest, "in_flight must be"
    ),
    "batches": (
        lambda world: world.client.queue(world.queue_name).publisher(batch_bytes=0), InvalidRequest, "batch_bytes must"
    ),
    # scanners
    "scanned partitions": (
        lambda world: world.client.queue(world.queue_name).combined_scanner([]), InvalidRequest, "at least one"
    ),
    "scanned topic": (
        lambda world: world.client.queue(world.queue_name).scanner(topics=["a b"]), InvalidRequest, "b"
    ),
    "scanned batch": (
        lambda world: world.client.queue(world.queue_name).scanner().next_batch(0), InvalidRequest, "1 to 100000"
    ),
    "scanned start": (
        lambda world: world.client.queue(world.queue_name).scanner(start="yesterday"), InvalidRequest, "no place"
    ),
    # subscribing
    "subscriber name": (lambda world: world.subscriber("a b"), InvalidRequest, "no subscription name"),
    "subscriber settings": (
        lambda world: world.subscriber("x", port=70_000, grace_seconds=-1), ConfigError, "port must.*grace_seconds must"
    ),
    "nothing to start": (lambda world: world.subscriber("x").start(), InvalidRequest, "nothing to start"),
    "queue subscribed to": (
        lambda world: world.subscriber("x").subscribe("a/b", listener=ignore), InvalidRequest, "no queue name"
    ),
    "no partition": (subscribing(partitions=[]), InvalidRequest, "at least one partition"),
    "partition subscribed to": (subscribing(partitions=[0, 7]), UnknownPartition, "0 to 1, not 7"),
    "kind of partition": (subscribing(partitions=["0"]), InvalidRequest, "a partition is a number"),
    "starts twice": (subscribing(partitions={0: "latest"}, start={0: "latest"}), InvalidRequest, "twice"),
    "start of another": (subscribing(partitions=[0], start={1: "latest"}), InvalidRequest, "not among"),
    "start": (subscribing(start="sometime"), InvalidRequest, "no place in a queue"),
    "start without a zone": (subscribing(start=datetime(2026, 1, 1)), InvalidRequest, "no time zone"),  # noqa: DTZ001
    "start in the future": (subscribing(start=datetime(2999, 1, 1, tzinfo=UTC)), InvalidRequest, "lies in the future"),
    "pattern": (subscribing(topics="eu de*"), InvalidRequest, r"eu de"),
    "kind of topics": (subscribing(topics=5), InvalidRequest, "topics are names, not '5'"),
    "bound": (subscribing(bound=-1), InvalidRequest, "bound is a number of messages"),
    "flow": (subscribing(flow={"window_messages": 2.5}), InvalidRequest, "window_messages must be"),
    "concurrency": (subscribing(concurrency=0), InvalidRequest, "concurrency must be a whole number from 1"),
    "acknowledging": (subscribing(manual="later"), InvalidRequest, "manual is True or False, not 'later'"),
    "newest messages twice": (subscribing(start="latest-per-key", bound=5), InvalidRequest, "give one of them"),
    "filter": (
        subscribing(filter="body.total >= >= 5"), InvalidRequest, "wrong at character 15, near '>= 5': .*write such as"
    ),
    "kind of filter": (subscribing(filter=5), InvalidRequest, "filter"),
    "dialect": (subscribing(filter={"fuzzy": {"topic": "x"}}), InvalidRequest, "fuzzy"),
    "no listener": (subscribing(listener=None), InvalidRequest, "has no listener"),
    "listener": (subscribing(listener="print"), InvalidRequest, "must be a function"),
    "generator": (subscribing(listener=generator), InvalidRequest, "generator"),
    "arguments": (subscribing(listener=lambda: None), InvalidRequest, "only argument"),
    "where": (subscribing(where=asynchronous), InvalidRequest, "must be a sync function"),
    # what follows a failure
    "kind of policy": (subscribing(retry=5), InvalidRequest, "must be a RetryPolicy"),
    "field of a policy": (subscribing(retry={"first": 1}), InvalidRequest, "a RetryPolicy has no first"),
    "mode": (subscribing(mode="maybe"), InvalidRequest, "mode"),
    "subscription to attach to": (subscribing(mode="attach"), UnknownSubscription, "another"),
    "order": (policy(order="none"), InvalidRequest, "order must be one of"),
    "pause": (policy(first_seconds=0), InvalidRequest, "first_seconds must be"),
    "pauses": (policy(first_seconds=60, longest_seconds=5), InvalidRequest, "must not be below first_seconds"),
    "several": (policy(factor=0.5, jitter=2), InvalidRequest, "factor must be.*jitter must be"),
    "deliveries": (policy(deliveries_max=2.5), InvalidRequest, "deliveries_max must be a whole number"),
    "time of a listener": (policy(timeout_seconds=float("nan")), InvalidRequest, "timeout_seconds must be"),
    "letters": (policy(dead_letters="yes"), InvalidRequest, "dead_letters must be True or False"),
    # subscriptions that are there
    "subscription that exists": (
        lambda world: world.client.create_subscription(world.queue_name, "billing"), SubscriptionExists, "already"
    ),
    "subscription that is not there": (
        lambda world: world.client.subscription_info(world.queue_name, "nobodys"), UnknownSubscription, "nobodys"
    ),
    "place": (seeking("sometime"), InvalidRequest, "no place in a queue"),
    "place beyond the end": (seeking(2**61), InvalidRequest, "beyond the last message"),
    "place before the beginning": (seeking("1-5"), InvalidRequest, "1-5 is before the first message"),
    "time to come": (seeking(datetime(2999, 1, 1, tzinfo=UTC)), InvalidRequest, "2999-01-01 00:00:00 UTC has not come"),
    "time to come, in words": (seeking("2999-01-01T00:00:00Z"), InvalidRequest, "has not come yet"),
    "partition to move": (seeking("earliest", partitions=[1]), UnknownPartition, "does not read partition 1"),
    "changed filter": (
        lambda world: world.client.update_subscription(world.queue_name, "billing", filter="key ="), InvalidRequest, "."
    ),
    "changed topics": (
        lambda world: world.client.update_subscription(world.queue_name, "billing", topics=["a b"]), InvalidRequest, "b"
    ),
    "message to explain": (
        lambda world: world.client.explain(world.queue_name, "billing", 5), InvalidRequest, "holds no message"
    ),
    "no partition to move": (seeking("earliest", partitions=[]), InvalidRequest, "at least one partition"),
    "keys that are text": (
        lambda world: world.client.release(world.queue_name, "billing", ["k"]), InvalidRequest, "of them bytes"  # type: ignore[list-item]
    ),
    "one key to release": (
        lambda world: world.client.release(world.queue_name, "billing", b"k"), InvalidRequest, "several"  # type: ignore[arg-type]
    ),
    "backlog": (creating(backlog_messages=0), InvalidRequest, "backlog messages must be at least 1"),
    "backlog that retention undercuts": (
        creating(backlog_bytes=1 << 21, retention_bytes=1 << 20), InvalidRequest, "retention would drop"
    ),
    "keys to release": (
        lambda world: world.client.release(world.queue_name, "nobodys"), UnknownSubscription, "nobodys"
    ),
}  # fmt: skip


def all_there_is(world: World) -> object:
    """What may not change."""
    client, queue = world.client, world.queue_name
    return (
        sorted(name for name in client.queues() if name.startswith(queue)),
        client.queue_record(queue),
        [(part.messages, part.last) for part in client.queue_info(queue).partitions],
        client.subscriptions(queue),
        [(part.position, part.lag) for part in client.subscription_info(queue, "billing").partitions],
        client.update_subscription(queue, "billing", dry_run=True),
    )


def told_otherwise(
    world: World, ask: Callable[[World], object], error: type[Exception], text: str
) -> str:  # fmt: skip
    """What was told instead of this error; empty when it was this one."""
    try:
        ask(world)
    except (HootError, TypeError) as told:
        right = isinstance(told, error) and re.search(text, str(told))
        return "" if right else f"{type(told).__name__}: {told}"
    return "no error"


@pytest.fixture
def laid_out(world: World) -> World:
    """A queue with a message, and a subscription to one of its partitions."""
    world.client.create_queue(world.queue_name, partitions=2).put(b"x", partition=0)
    world.client.create_subscription(world.queue_name, "billing", partitions=[0], start="latest", topics=["eu.*"])
    return world


def test_what_cannot_be_is_refused_by_its_name_and_nothing_has_changed(laid_out: World) -> None:
    """One test for all, as an engine takes longer to lay out than all of it to be refused."""
    before = all_there_is(laid_out)
    wrong = [f"{name}: {told}" for name, one in REFUSED.items() if (told := told_otherwise(laid_out, *one))]
    assert wrong == []
    assert all_there_is(laid_out) == before


def test_what_was_closed_does_nothing_any_more(world: World) -> None:
    queue = world.client.create_queue(world.queue_name)
    publisher = queue.publisher()
    publisher.close()
    with pytest.raises(Closed):
        publisher.put(b"x")
    scanner = queue.scanner()
    scanner.close()
    with pytest.raises(InvalidRequest, match="closed"):
        scanner.next()
    world.client.close()
    for call in (world.client.queues, lambda: queue.put(b"x"), lambda: world.client.queue(world.queue_name)):
        with pytest.raises(Closed):
            call()
