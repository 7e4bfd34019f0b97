"""What an application can rely on whose members share a partition by key, on the test kit as on a real engine."""

from __future__ import annotations

import pytest

from delivery import NewMessage
from delivery.errors import InvalidRequest
from subscriber import RetryPolicy
from subscriber.effects import exactly_once
from subscriber.sqlite import SQLitePositions
from tests.applications import QUICK_SECONDS, Handler, World, made_queue

BY_KEY = RetryPolicy(order="key", first_seconds=QUICK_SECONDS, jitter=0)
KEYS = [b"%d" % number for number in range(20)]


def rows(times: int, prefix: bytes = b"") -> list[NewMessage]:
    """Each key so often; the bodies tell key and place."""
    return [NewMessage(b"%s%s/%d" % (prefix, key, place), key=key) for place in range(times) for key in KEYS]


def bodies(messages: list[NewMessage]) -> list[bytes]:
    return sorted(bytes(one.body) for one in messages)


def crew(world: World, *handlers: Handler, **options: object) -> None:
    """A member for each of the handlers."""
    for handler in handlers:
        subscriber = world.subscriber(member=f"m{len(world.made)}")
        given = {"kind": "key_shared", "start": "earliest", "retry": BY_KEY, **options}
        subscriber.subscribe(world.queue_name, listener=handler, **given)  # type: ignore[arg-type]
        subscriber.start()


def shares(world: World) -> list[float]:
    """What each member has of the one partition."""
    info = world.client.subscription_info(world.queue_name, "billing")
    return [round(one.shares.get(0, 0.0), 1) for one in info.members]


def handled(*handlers: Handler) -> list[bytes]:
    return sorted(body for one in handlers for body in one.bodies)


def keys_of(handler: Handler) -> set[bytes]:
    return {body.partition(b"/")[0] for body in handler.bodies}


def test_each_key_is_with_one_member_in_order_and_comes_to_another_when_that_one_leaves(world: World) -> None:
    queue, first, second = made_queue(world), Handler(), Handler()
    crew(world, first, second)
    world.until(lambda: shares(world) == [0.5, 0.5], "each has half of the keys")
    queue.put_many(before := rows(3))
    world.until(lambda: handled(first, second) == bodies(before), "all came once")
    assert not keys_of(first) & keys_of(second)
    for handler in (first, second):
        assert keys_of(handler)
        for key in keys_of(handler):
            assert [body for body in handler.bodies if body.startswith(key + b"/")] == [
                b"%s/%d" % (key, place) for place in range(3)
            ]
    world.made[0].stop()
    queue.put_many(after := rows(1, b"-"))
    world.until(lambda: handled(first, second) == bodies([*before, *after]), "the other one gets the rest, all once")
    world.until_acknowledged()
    assert shares(world) == [1.0]


def test_what_failed_waits_with_its_key_and_filters_choose_as_ever(world: World) -> None:
    queue = made_queue(world)
    handlers = [Handler({b"7/0": 1}), Handler({b"7/0": 1})]
    crew(world, *handlers, filter="key != '3'")
    messages = rows(2)
    queue.put_many(messages)
    wanted = [one for one in messages if one.key != b"3"]
    world.until(lambda: handled(*handlers) == bodies(wanted), "all that is wanted is handled")
    [holder] = [one for one in handlers if b"7" in keys_of(one)]
    assert [body for body in holder.bodies if body.startswith(b"7/")] == [b"7/0", b"7/1"]
    world.until_acknowledged()


def test_it_is_paused_moved_and_put_back_as_any_other(world: World) -> None:
    queue, handlers = made_queue(world), [Handler(), Handler()]
    crew(world, *handlers)
    stored = queue.put_many(messages := rows(1))
    world.until(lambda: handled(*handlers) == bodies(messages), "all came")
    world.until_acknowledged()
    world.client.create_snapshot(world.queue_name, "billing", "before")
    world.client.pause(world.queue_name, "billing")
    world.client.seek(world.queue_name, "billing", stored[0].id, force=True)
    world.until(lambda: world.client.subscription_info(world.queue_name, "billing").lag == len(messages), "it moved")
    assert handled(*handlers) == bodies(messages), "it is paused"
    world.client.resume(world.queue_name, "billing")
    world.until(lambda: handled(*handlers) == bodies([*messages, *messages]), "all came again")
    world.client.restore_snapshot(world.queue_name, "billing", "before", force=True)
    queue.put(b"last/0", key=b"last")
    world.until(lambda: b"last/0" in handled(*handlers), "it goes on where the snapshot was taken")
    others = [body for body in handled(*handlers) if body != b"last/0"]  # may come before the move, too
    assert others == bodies([*messages, *messages])


def test_with_another_kind_it_goes_on_with_nothing_lost(world: World) -> None:
    queue, handlers = made_queue(world), [Handler(), Handler()]
    crew(world, *handlers)
    queue.put_many(before := rows(1))
    world.until(lambda: handled(*handlers) == bodies(before), "all came")
    for one in world.made:
        one.stop()
    queue.put_many(after := rows(1, b"-"))
    alone = Handler()
    crew(world, alone, kind="shared")
    world.until(lambda: set(bodies(after)) <= set(alone.bodies), "all that is new")
    world.until_acknowledged()


def test_effects_that_need_the_order_of_ids_are_refused(world: World) -> None:
    made_queue(world)
    subscriber = world.subscriber(member="m")
    decorated = exactly_once(SQLitePositions(":memory:", "billing"))(lambda _message, _connection: None)
    subscriber.subscribe(world.queue_name, kind="key_shared", listener=decorated)
    with pytest.raises(InvalidRequest, match="use idempotent"):
        subscriber.start()
