"""The two faces of the subscriber: threads of its own for ordinary programs, the program's loop for trio programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel

from delivery.config import HostConfig
from delivery.errors import InvalidRequest
from delivery.metastore.catalog import Catalog
from delivery.model import Message, QueueSettings
from subscriber import AsyncSubscriber, Event, Subscriber
from subscriber.inbox import Status
from tests.hosting import batch as published, eventually
from tests.integration.hosts import RunningHost
from tests.integration.subscribing import NAME, QUEUE, Noted, Owner, attached, batch, in_thread, owner_of, play

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]

# A script as a newcomer writes it.
SCRIPT = """\
import sys
from subscriber import Subscriber
subscriber = Subscriber(sys.argv[2], zookeeper=sys.argv[1])
subscriber.subscribe(sys.argv[3], start="earliest")

@subscriber.listener
def on_message(message):
    print(message.number, flush=True)

@subscriber.on_event
def on_event(event):
    print(event.kind, flush=True)

subscriber.run()
print("bye", flush=True)
"""


@pytest.fixture
def subscriber(queue: Catalog, zookeeper_hosts: str) -> Subscriber:
    """The blocking face with one subscription, not started."""
    made = Subscriber(NAME, zookeeper_hosts)
    made.subscribe(QUEUE, start="earliest")
    return made


def pushing(catalog: Catalog, story: Callable[[Owner], Awaitable[None]]) -> None:
    """Act as the owner, from this thread."""

    async def run() -> None:
        async with owner_of(attached(catalog)) as owner:
            await story(owner)

    play(run)


@pytest.mark.parametrize("face", [Subscriber, AsyncSubscriber])
def test_both_faces_keep_the_filter_with_the_subscription_and_ask_where_before_any_listener(
    queue: Catalog, zookeeper_hosts: str, face: type[Subscriber | AsyncSubscriber]
) -> None:
    taken: list[int] = []
    asked: dict[str, Any] = {
        "topics": "J*", "start": "earliest", "filter": {"exact": {"key": "7"}},
        "where": lambda message: message.number % 2, "listener": lambda message: taken.append(message.number),
    }  # fmt: skip

    async def story() -> None:
        subscriber = face(NAME, zookeeper_hosts)
        if isinstance(subscriber, AsyncSubscriber):
            await subscriber.subscribe(QUEUE, **asked)
            async with subscriber, owner_of(attached(queue)) as owner:
                assert await owner.push(0, batch(1, 4)) == (Status.OK, 4)
            return
        subscriber.subscribe(QUEUE, **asked)
        await trio.to_thread.run_sync(subscriber.start)
        async with owner_of(attached(queue)) as owner:
            assert await owner.push(0, batch(1, 4)) == (Status.OK, 4)
        await trio.to_thread.run_sync(subscriber.stop)

    play(story)
    assert taken == [1, 3]
    record = queue.subscription(QUEUE, NAME)
    assert record is not None
    assert (record.topics, record.filter) == (("J*",), '{"exact":{"key":"7"}}')


def test_a_script_receives_and_ends_cleanly_on_ctrl_c(queue: Catalog, zookeeper_hosts: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, zookeeper_hosts, NAME, QUEUE],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "attached\n"

            async def push(owner: Owner) -> None:
                assert await owner.push(0, batch(7, 1)) == (Status.OK, 7)

            pushing(queue, push)
            assert process.stdout.readline() == "7\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
            assert (out, err, process.returncode) == ("bye\n", "", 0)
        finally:
            process.kill()
    assert queue.listener(QUEUE, NAME) is None
    assert queue.subscriptions(QUEUE) == [NAME]


def test_async_listeners_work_in_the_blocking_face_in_a_loop_of_its_own(queue: Catalog, subscriber: Subscriber) -> None:
    seen: list[tuple[int, str]] = []

    @subscriber.listener
    async def on_message(message: Message) -> None:
        await trio.lowlevel.checkpoint()
        seen.append((message.number, threading.current_thread().name))

    async def push(owner: Owner) -> None:
        assert await owner.push(0, batch(1, 2)) == (Status.OK, 2)

    with subscriber:
        pushing(queue, push)
    assert seen == [(1, f"subscriber-{NAME}"), (2, f"subscriber-{NAME}")]


def test_listeners_of_the_subscriber_and_of_a_subscription_are_called_in_the_order_of_registration(
    queue: Catalog, subscriber: Subscriber
) -> None:
    order: list[str] = []
    subscription = subscriber.subscriptions[QUEUE]
    subscription.listener(lambda message: order.append("first"))
    subscriber.listener(lambda message: order.append("second"))
    subscription.batch_listener(lambda messages: order.append("third"))
    subscriber.batch_listener(lambda messages: order.append("fourth"))

    async def push(owner: Owner) -> None:
        assert await owner.push(0, batch(1, 1)) == (Status.OK, 1)

    with subscriber:
        pushing(queue, push)
    assert order == ["first", "second", "third", "fourth"]


def test_decorators_give_the_function_back_and_refuse_a_wrong_one(subscriber: Subscriber) -> None:
    def listener(message: Message) -> None: ...

    def nothing() -> None: ...

    async def later(event: Event) -> None: ...

    subscription = subscriber.subscriptions[QUEUE]
    for decorate in (subscription.listener, subscription.batch_listener, subscriber.listener, subscriber.on_event):
        assert decorate(listener) is listener
        with pytest.raises(InvalidRequest, match="nothing"):
            decorate(nothing)
    with pytest.raises(InvalidRequest, match="sync"):
        subscriber.on_event(later)


def test_a_callback_may_stop_the_subscriber_and_run_returns(queue: Catalog, subscriber: Subscriber) -> None:
    subscriber.listener(lambda message: subscriber.stop())
    subscriber.start()

    async def push(owner: Owner) -> None:
        assert await owner.push(0, batch(1, 3)) == (Status.OK, 3)

    pushing(queue, push)
    subscriber.run()
    assert queue.listener(QUEUE, NAME) is None


def test_it_can_be_started_again_and_not_twice(queue: Catalog, subscriber: Subscriber) -> None:
    subscriber.listener(Noted())
    for _ in range(2):
        with subscriber:
            with pytest.raises(InvalidRequest, match="running already"):
                subscriber.start()
            assert subscriber.port > 0
        subscriber.stop()
    assert subscriber.port == 0


def test_a_failing_event_callback_harms_nobody(queue: Catalog, subscriber: Subscriber) -> None:
    noted, events = Noted(), []
    subscriber.listener(noted)

    @subscriber.on_event
    def failing(event: Event) -> None:
        events.append(event.kind)
        raise ValueError("no")

    async def push(owner: Owner) -> None:
        assert await owner.push(0, batch(1, 3)) == (Status.OK, 3)

    with subscriber:
        pushing(queue, push)
    assert (noted.ids, events) == ([1, 2, 3], ["attached"])


def test_stop_waits_for_the_callback_under_way(queue: Catalog, subscriber: Subscriber) -> None:
    noted = Noted()
    noted.gate.clear()
    subscriber.listener(noted)
    subscriber.start()

    async def push(owner: Owner) -> None:
        reply = await owner.begin(0, batch(1, 1))
        await in_thread(noted.entered)
        stopping = threading.Thread(target=subscriber.stop)
        stopping.start()
        await trio.sleep(0.1)
        assert stopping.is_alive()
        noted.gate.set()
        assert (await reply()).status == Status.OK
        await trio.to_thread.run_sync(stopping.join)

    pushing(queue, push)
    assert noted.ids == [1]


def test_what_happens_is_counted(queue: Catalog, subscriber: Subscriber) -> None:
    subscriber.listener(Noted(3))

    async def push(owner: Owner) -> None:
        await owner.push(0, batch(1, 2))
        await owner.push(2, batch(3, 2))
        await owner.push(4, batch(5, 2))
        counters = subscriber.counters
        assert (counters.pushes, counters.failed, counters.skipped) == (1, 1, 1)

    with subscriber:
        pushing(queue, push)


# -- the trio face


def test_the_trio_face_raises_what_the_body_raises_and_stops(queue: Catalog, zookeeper_hosts: str) -> None:
    async def story() -> None:
        subscriber = AsyncSubscriber(NAME, zookeeper_hosts)
        await subscriber.subscribe(QUEUE, start="earliest", listener=Noted())

        async def body() -> None:
            async with subscriber:
                assert queue.listener(QUEUE, NAME) is not None
                raise KeyError

        with pytest.raises(KeyError):
            await body()
        assert queue.listener(QUEUE, NAME) is None

    play(story)


def test_the_trio_face_unsubscribes_and_subscribes_while_it_runs(queue: Catalog, zookeeper_hosts: str) -> None:
    async def story() -> None:
        queue.create_queue("ships", QueueSettings())
        subscriber = AsyncSubscriber(NAME, zookeeper_hosts)
        await subscriber.subscribe(QUEUE, start="earliest", listener=Noted())
        async with subscriber:
            await subscriber.subscribe("ships", start="earliest", listener=Noted())
            assert queue.subscriptions("ships") == [NAME]
            await subscriber.unsubscribe("ships")
            assert queue.subscriptions("ships") == []
        await subscriber.unsubscribe(QUEUE)
        assert queue.subscriptions(QUEUE) == []
        await subscriber.stop()

    play(story)


# -- with a real region host


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_with_a_region_host_what_is_published_arrives_and_is_checkpointed(
    catalog: Catalog, zookeeper_hosts: str, tmp_path: Path, start: str
) -> None:
    catalog.create_queue(QUEUE, QueueSettings())
    bodies: list[bytes] = []
    subscriber = Subscriber(NAME, zookeeper_hosts)
    subscriber.subscribe(QUEUE, start=start, listener=lambda message: bodies.append(message.body))

    with RunningHost(HostConfig(zookeeper=zookeeper_hosts, data=tmp_path)) as host, host.connect() as connection:
        connection.call("publish", QUEUE, 0, published(b"before"), None)
        with subscriber:
            connection.call("publish", QUEUE, 0, published(b"one", b"two"), None)
            reply = connection.call("publish", QUEUE, 0, published(b"three"), None)

            async def story() -> None:
                await eventually(lambda: len(bodies) == (4 if start == "earliest" else 3))
                await eventually(
                    lambda: any(one.position == reply.baseId for one in catalog.states(QUEUE, NAME).values())
                )

            play(story)
        connection.call("publish", QUEUE, 0, published(b"meanwhile"), None)
        with subscriber:
            play(lambda: eventually(lambda: bodies[-1] == b"meanwhile"))
    assert bodies == [b"before"] * (start == "earliest") + [b"one", b"two", b"three", b"meanwhile"]
