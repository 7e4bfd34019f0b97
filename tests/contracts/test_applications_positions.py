"""What an application can rely on, on the engine of the test kit as on a real one: positions, names, and the end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from delivery import Client, NewMessage
from delivery.errors import (
    HootError,
    InvalidRequest,
    QueueFull,
    SubscriptionBusy,
    SubscriptionExists,
    UnknownOutcome,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.metastore.managers.changes import MoveState, Taken
from delivery.metastore.managers.states import SubscriptionStates
from subscriber import Event, Message
from tests.applications import Handler, World, made_queue, numbered, run


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


def test_who_wants_some_partitions_gets_these_alone_and_others_later(world: World) -> None:
    queue, handler = made_queue(world, partitions=3), Handler()
    subscription = run(world, handler, partitions=[0, 2])
    assert subscription.state == "attached"
    for number in range(6):
        queue.put(b"%d" % number, partition=number % 3)
    world.until(lambda: len(handler.bodies) == 4, "those of the two partitions came")
    world.until_acknowledged()
    assert sorted(handler.bodies) == [b"0", b"2", b"3", b"5"]
    world.made[0].stop()
    run(world, handler, partitions=[0, 1, 2])
    world.until(lambda: len(handler.bodies) == 6, "what the third has is new to it")
    assert sorted(handler.bodies[4:]) == [b"1", b"4"]


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


@pytest.mark.parametrize("other", [0, 1])
def test_of_two_who_move_positions_at_once_both_are_heard(
    world: World, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, handler, name = made_queue(world, 2), Handler(), world.queue_name
    for number in range(4):
        queue.put(b"%d" % number, partition=number % 2)
    run(world, handler)
    world.until(lambda: len(handler.bodies) == 4, "all came")
    world.until_acknowledged()
    move = SubscriptionStates.move_states

    def after_another(states: SubscriptionStates, moves: Sequence[MoveState]) -> list[Taken | HootError]:
        monkeypatch.undo()
        world.client.seek(name, "billing", "earliest", partitions=[other], force=True)
        world.until(lambda: handler.bodies[4:] == [b"%d" % other, b"%d" % (other + 2)], "the other one is heard")
        world.until_acknowledged()
        return move(states, moves)

    monkeypatch.setattr(SubscriptionStates, "move_states", after_another)
    world.client.seek(name, "billing", "earliest", partitions=[0], force=True)
    world.until(lambda: handler.bodies[6:] == [b"0", b"2"], "this one, too, although nothing more was published")


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


def test_publishers_wait_for_a_subscription_where_the_queue_says_so(world: World) -> None:
    queue = world.client.create_queue(world.queue_name, backlog_messages=3)
    world.client.create_subscription(world.queue_name, "billing", start="earliest")
    refusals: list[str] = []

    def stored() -> bool:
        try:
            queue.put(b"x", timeout=2)
        except QueueFull as error:
            refusals.append(error.message)
            return False
        except UnknownOutcome:  # an answer that took longer: the next one tells
            return False
        return True

    for _ in range(3):
        queue.put(b"x", timeout=30)
    world.until(lambda: not stored() and refusals != [], "it is full")
    assert "subscription 'billing' has" in refusals[0]
    before = queue.count(0, 0)
    run(world, handler := Handler())
    world.until_acknowledged()
    world.until(stored, "there is room again")
    world.until(lambda: len(handler.bodies) > before, "what was put then is delivered")


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


def test_a_subscription_goes_back_to_where_it_stood(world: World) -> None:
    queue, handler = made_queue(world), Handler()
    queue.put_many(numbered(2))
    run(world, handler)
    world.until(lambda: len(handler.bodies) == 2, "all came")
    world.until_acknowledged()
    world.client.create_snapshot(world.queue_name, "billing", "before")
    queue.put(b"2")
    world.until(lambda: len(handler.bodies) == 3, "the next came")
    world.until_acknowledged()
    world.client.restore_snapshot(world.queue_name, "billing", "before", force=True)
    world.until(lambda: handler.bodies == [*numbered(3), b"2"], "it came again")


def test_a_replay_delivers_a_stretch_again_beside_the_subscription(world: World) -> None:
    queue, handler, shadow = made_queue(world), Handler(), Handler()
    stored = [queue.put(body) for body in numbered(4)]
    run(world, handler)
    world.until(lambda: len(handler.bodies) == 4, "all came")
    name = world.queue_name
    world.client.replay(name, "billing", "again", start=stored[1].id, end=stored[3].id, speed="max")
    subscriber = world.subscriber("again")
    subscriber.subscribe(name, listener=shadow)
    subscriber.start()
    world.until(lambda: shadow.bodies == [b"1", b"2"], "the stretch came")
    assert handler.bodies == numbered(4)


def test_a_subscription_may_begin_with_the_newest_of_each_key(world: World) -> None:
    queue, handler = made_queue(world), Handler()
    for number in range(6):
        queue.put(b"%d" % number, key=b"%d" % (number % 2))
    run(world, handler, start="latest-per-key")
    queue.put(b"6", key=b"0")
    world.until(lambda: handler.bodies == [b"4", b"5", b"6"], "the newest came, then all")


def test_the_members_of_a_group_share_the_partitions_and_take_over_from_who_leaves(world: World) -> None:
    queue, handlers = made_queue(world, 4), [Handler(), Handler()]
    for member, handler in enumerate(handlers):
        subscriber = world.subscriber(member=f"m{member}")
        subscriber.subscribe(world.queue_name, kind="shared", start="earliest", listener=handler)
        subscriber.start()

    def both_have_some() -> bool:
        queue.put_many([NewMessage(b"x", partition=partition) for partition in range(4)])
        world.until_acknowledged()
        return all(handler.bodies for handler in handlers)

    world.until(both_have_some, "each has partitions")
    world.made[0].stop()
    before = len(handlers[1].bodies)
    queue.put_many([NewMessage(b"y", partition=partition) for partition in range(4)])
    world.until(lambda: handlers[1].bodies[before:].count(b"y") == 4, "the other one has all")


def test_the_kind_can_be_changed_while_nobody_is_attached(world: World) -> None:
    queue, handler = made_queue(world), Handler()
    run(world, handler)
    queue.put(b"0")
    world.until(lambda: handler.bodies == [b"0"], "it came")
    before = world.client.subscription_info(world.queue_name, "billing").kind
    for dry_run in (True, False):
        with pytest.raises(SubscriptionBusy, match="while nobody is attached"):
            world.client.update_subscription(world.queue_name, "billing", kind="shared", dry_run=dry_run)
    with pytest.raises(InvalidRequest, match="kind must be one of"):
        world.client.update_subscription(world.queue_name, "billing", kind="both")  # type: ignore[arg-type]
    assert world.client.update_subscription(world.queue_name, "billing", kind="exclusive").kind == before
    world.made[0].stop()
    assert world.client.update_subscription(world.queue_name, "billing", kind="shared").kind == "shared"
    queue.put(b"1")
    run(world, handler)
    world.until(lambda: handler.bodies == [b"0", b"1"], "a member goes on")
    assert len(world.client.subscription_info(world.queue_name, "billing").members) == 1


def test_a_pattern_takes_queues_that_are_there_and_those_that_come(world: World) -> None:
    made_queue(world).put(b"0")
    handler, other = Handler(), f"{world.queue_name}.b"
    subscriber = world.subscriber()
    subscriber.subscribe(f"{world.queue_name}*", start="earliest", listener=handler)
    subscriber.start()
    world.client.create_queue(other).put(b"1")
    world.until(lambda: handler.bodies == [b"0", b"1"], "both came")
