"""What an application can rely on, on the engine of the test kit as on a real one: messages, failures, positions."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest
import trio

from delivery import Client, NewMessage, Queue
from delivery.errors import InvalidRequest, SubscriptionBusy, SubscriptionExists, UnknownQueue, UnknownSubscription
from subscriber import Event, Message, Reject, Retry, RetryPolicy, Subscription
from tests.applications import QUICK_SECONDS, World

QUICK = RetryPolicy(first_seconds=QUICK_SECONDS, jitter=0)
BY_KEY = RetryPolicy(order="key", first_seconds=QUICK_SECONDS, jitter=0)


class Handler:
    """A listener that fails as often as it is told to; `bodies` has what it handled."""

    def __init__(self, failing: dict[bytes, int] | None = None, rejected: tuple[bytes, ...] = ()) -> None:
        self.failing, self.rejected = Counter(failing or {}), rejected
        self.bodies: list[bytes] = []
        self.calls: list[bytes] = []

    def __call__(self, message: Message) -> object:
        self.calls.append(message.body)
        if message.body in self.rejected:
            return Reject("it is junk")
        if self.failing[message.body] > 0:
            self.failing[message.body] -= 1
            raise ValueError("not now")
        self.bodies.append(message.body)
        return None


def made_queue(world: World, partitions: int = 1) -> Queue:
    return world.client.create_queue(world.queue_name, partitions=partitions)


def run(world: World, handler: Handler, **options: object) -> Subscription:
    """A subscriber that is started, with this listener."""
    subscriber = world.subscriber()
    made = subscriber.subscribe(world.queue_name, listener=handler, **{"start": "earliest", **options})  # type: ignore[arg-type]
    subscriber.start()
    return made


def numbered(count: int, prefix: bytes = b"") -> list[bytes]:
    return [prefix + b"%d" % number for number in range(count)]


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


@pytest.mark.parametrize(("start", "expected"), [("earliest", [0, 1, 2, 3]), ("latest", [3]), ("id", [1, 2, 3])])
def test_a_new_subscription_begins_where_it_is_told_to(world: World, start: str, expected: list[int]) -> None:
    queue, handler = made_queue(world), Handler()
    stored = [queue.put(body) for body in numbered(3)]
    run(world, handler, start=stored[1].id if start == "id" else start)
    queue.put(b"3")
    world.until(lambda: len(handler.bodies) == len(expected), "all came")
    world.until_acknowledged()
    assert handler.bodies == [b"%d" % number for number in expected]


def test_who_comes_back_goes_on_where_it_ended_and_who_unsubscribes_begins_anew(world: World) -> None:
    queue, handler = made_queue(world), Handler()
    run(world, handler)
    queue.put(b"0")
    world.until(lambda: handler.bodies == [b"0"], "it came")
    world.made[0].stop()
    assert world.made[0].subscriptions[world.queue_name].state == "stopped"
    queue.put(b"1")
    run(world, handler)
    world.until(lambda: handler.bodies == [b"0", b"1"], "it goes on")
    world.made[1].unsubscribe(world.queue_name)
    assert world.client.subscriptions(world.queue_name) == []
    queue.put(b"2")
    world.made[1].stop()
    run(world, handler, start="latest")
    queue.put(b"3")
    world.until(lambda: handler.bodies[2:] == [b"3"], "a new one begins at the end")


def test_a_name_has_one_subscriber_until_another_takes_it_over(world: World) -> None:
    queue, first, second = made_queue(world), Handler(), Handler()
    kept = run(world, first)
    with pytest.raises(SubscriptionBusy):
        run(world, second)
    forced = world.subscriber(force=True)
    forced.subscribe(world.queue_name, listener=second)
    forced.start()
    world.until(lambda: kept.state == "taken_over", "the first is told")
    queue.put(b"x")
    world.until(lambda: second.bodies == [b"x"], "the second has it")
    assert first.bodies == []
    assert isinstance(kept.error, SubscriptionBusy)


def test_who_wants_a_new_subscription_does_not_get_one_that_is_there(world: World) -> None:
    queue, handler = made_queue(world), Handler()
    queue.put(b"0")
    run(world, handler, mode="create")
    world.until(lambda: handler.bodies == [b"0"], "it came")
    world.made[0].stop()
    with pytest.raises(SubscriptionExists):
        run(world, handler, mode="create")
    run(world, handler, mode="attach")
    queue.put(b"1")
    world.until(lambda: handler.bodies == [b"0", b"1"], "it goes on")


def test_messages_are_kept_while_none_are_wanted(world: World) -> None:
    queue, handler = made_queue(world), Handler()
    subscription = run(world, handler)
    subscription.stop_delivery()
    queue.put_many(numbered(3))
    world.until(lambda: world.client.subscription_info(world.queue_name, "billing").lag == 3, "they wait")
    assert handler.calls == []
    subscription.start_delivery()
    world.until(lambda: handler.bodies == numbered(3), "they come")
    world.until_acknowledged()


def test_a_position_can_be_moved_while_messages_come(world: World) -> None:
    queue, handler = made_queue(world), Handler()
    stored = [queue.put(body) for body in numbered(4)]
    run(world, handler)
    world.until(lambda: handler.bodies == numbered(4), "all came")
    world.until_acknowledged()
    with pytest.raises(SubscriptionBusy):
        world.client.seek(world.queue_name, "billing", stored[2].id)
    [move] = world.client.seek(world.queue_name, "billing", stored[2].id, force=True, dry_run=True)
    assert move.messages == 2
    world.client.seek(world.queue_name, "billing", stored[2].id, force=True)
    world.until(lambda: handler.bodies == [*numbered(4), b"2", b"3"], "two came again")


def test_a_listener_publishes_and_subscribes_further(world: World) -> None:
    queue, done = made_queue(world), Handler()
    other = f"{world.queue_name}-out"
    out = world.client.create_queue(other)

    def forward(message: Message) -> None:
        out.put(message.body.upper())

    subscriber = world.subscriber("forward")
    subscriber.subscribe(world.queue_name, start="earliest", listener=forward)
    with subscriber:
        subscriber.subscribe(other, start="earliest", listener=done)
        with queue.publisher() as publisher:
            receipts = [publisher.put(body) for body in (b"a", b"b")]
        assert [receipt.result().partition for receipt in receipts] == [0, 0]
        world.until(lambda: done.bodies == [b"A", b"B"], "they came out")
    assert [message.body for message in out.scanner()] == [b"A", b"B"]


def test_the_end_of_a_queue_ends_its_subscriptions(world: World) -> None:
    made_queue(world)
    events: list[Event] = []
    subscription = run(world, Handler())
    world.made[0].on_event(events.append)
    world.client.delete_queue(world.queue_name)
    world.until(lambda: subscription.state == "deleted", "the subscriber is told")
    world.until(lambda: [event.kind for event in events][-1:] == ["deleted"], "and tells")
    assert isinstance(subscription.error, UnknownSubscription | UnknownQueue)
    with pytest.raises(UnknownQueue):
        world.client.queue(world.queue_name)


def test_a_start_in_the_future_is_refused_and_leaves_nothing(world: World) -> None:
    made_queue(world)
    with pytest.raises(InvalidRequest, match="lies in the future"):
        run(world, Handler(), start=datetime(2999, 1, 1, tzinfo=UTC))
    assert world.client.subscriptions(world.queue_name) == []


def test_what_a_scanner_and_the_numbers_say(world: World) -> None:
    queue = made_queue(world, 2)
    stored = queue.put_many(
        [NewMessage(body, partition=n % 2, topic=f"t{n % 3}") for n, body in enumerate(numbered(6))]
    )
    client: Client = world.client
    assert sorted(m.body for m in queue.scanner(start=stored[2].id)) == [
        m.body for m in sorted(queue.scanner(), key=lambda m: m.body) if m.id >= stored[2].id
    ]  # fmt: skip
    assert {m.body for m in queue.scanner(topics=["t0"])} == {b"0", b"3"}
    assert [part.messages for part in client.queue_info(world.queue_name).partitions] == [3, 3]
    client.create_subscription(world.queue_name, "later", start="earliest")
    assert client.subscription_info(world.queue_name, "later").lag == 6
    [explained] = client.explain(world.queue_name, "later", stored[0].id, partition=0)
    assert explained.refused_by is None
