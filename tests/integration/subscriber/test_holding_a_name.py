"""Against whom a subscriber holds its name, and how it loses a subscription or its session."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from delivery.embedded import EmbeddedZooKeeper
from delivery.embedded.ports import free_port
from delivery.errors import (
    SubscriptionBusy,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.records import ListenerRecord
from delivery.metastore.request import Request
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from subscriber import AsyncSubscriber, Event, Subscriber
from subscriber.registration import Plan, SubscriberZooKeeper
from tests.hosting import eventually
from tests.integration.subscribing import NAME, QUEUE, Noted, attached, ignore, play, subscribed

pytestmark = pytest.mark.integration


ROOT = Path(__file__).resolve().parents[3]

# A subscriber in a process of its own, which prints its port and waits to be killed.
OTHER = """\
import sys, threading
from subscriber import Subscriber
subscriber = Subscriber(sys.argv[2], sys.argv[1], session_timeout_seconds=30)
subscriber.subscribe(sys.argv[3], start="earliest", listener=print)
subscriber.start()
print(subscriber.port, flush=True)
threading.Event().wait()
"""


# -- two of one name


def test_a_second_subscriber_of_the_name_is_refused_while_the_first_lives(
    queue: Catalog, make: Callable[..., Subscriber]
) -> None:
    first, second = make(), make()
    subscribed(first)
    subscribed(second, topics=["JFK"])
    with first:
        record, listener = queue.subscription(QUEUE, NAME), attached(queue)
        with pytest.raises(SubscriptionBusy, match="which is alive") as caught:
            second.start()
        assert caught.value.address == f"127.0.0.1:{first.port}"
        assert (queue.subscription(QUEUE, NAME), attached(queue)) == (record, listener)
    second.start()
    assert attached(queue).port == second.port


def test_force_takes_the_subscription_over_and_the_first_one_is_told(
    queue: Catalog, make: Callable[..., Subscriber]
) -> None:
    events: list[Event] = []
    first, second = make(), make(force=True)
    first.on_event(events.append)
    subscription = subscribed(first)
    subscribed(second)
    first.start()
    with second:
        with pytest.raises(SubscriptionBusy):
            first.run()
        assert subscription.state == "taken_over"
        assert isinstance(subscription.error, SubscriptionBusy)
        assert [event.kind for event in events] == ["attached", "taken_over"]
        assert attached(queue).port == second.port


@contextlib.contextmanager
def elsewhere(zookeeper_hosts: str) -> Iterator[subprocess.Popen[str]]:
    """A subscriber in another process, attached."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, zookeeper_hosts, NAME, QUEUE],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip().isdecimal()
            yield process
        finally:
            process.kill()


def test_a_killed_subscriber_is_replaced_at_once_long_before_its_session_ends(
    queue: Catalog, zookeeper_hosts: str, make: Callable[..., Subscriber]
) -> None:
    with elsewhere(zookeeper_hosts) as other:
        before = attached(queue)
        other.kill()
        other.wait()
        subscriber = make()
        subscribed(subscriber)
        began = time.monotonic()
        with subscriber:
            assert time.monotonic() - began < 20
            assert attached(queue) != before


def test_a_subscriber_that_was_paused_counts_as_alive(
    queue: Catalog, zookeeper_hosts: str, make: Callable[..., Subscriber]
) -> None:
    with elsewhere(zookeeper_hosts) as other:
        before = attached(queue)
        other.send_signal(19)  # SIGSTOP
        subscriber = make()
        subscribed(subscriber)
        with pytest.raises(SubscriptionBusy):
            subscriber.start()
        assert attached(queue) == before
        forced = make(force=True)
        subscribed(forced)
        with forced:
            assert attached(queue) != before


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["closes", "talks HTTP"])
def test_a_dead_listener_whose_port_another_program_took_is_replaced(
    queue: Catalog, make: Callable[..., Subscriber], answer: bytes
) -> None:
    subscriber = make()
    subscribed(subscriber)
    subscriber.start()
    subscriber.stop()

    async def stranger(stream: trio.SocketStream) -> None:
        await stream.receive_some(1)
        if answer:
            await stream.send_all(answer)
        await stream.aclose()

    async def story() -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        queue.attach(QUEUE, NAME, ListenerRecord(address="127.0.0.1", port=port, token="t"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, stranger, listeners)
            await trio.to_thread.run_sync(subscriber.start)
            assert attached(queue).port == subscriber.port
            nursery.cancel_scope.cancel()

    play(story)


def test_a_fixed_port_can_be_used_again_after_a_kill(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    """The new subscriber listens before it looks who is alive: what answers at the old address is itself."""
    port = free_port(None)
    subscriber = make(port=port)
    subscribed(subscriber)
    subscriber.start()
    subscriber.stop()
    queue.attach(QUEUE, NAME, ListenerRecord(address="127.0.0.1", port=port, token="of the one that was killed"))
    with subscriber:
        assert attached(queue).token != "of the one that was killed"


# -- unsubscribing, deleting


def test_unsubscribing_deletes_the_durable_state(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    subscriber = make()
    subscription = subscribed(subscriber)
    with subscriber:
        subscriber.unsubscribe(QUEUE)
        assert queue.subscriptions(QUEUE) == []
        assert queue.listener(QUEUE, NAME) is None
        assert subscription.state == "deleted"
        with pytest.raises(UnknownSubscription):
            subscriber.unsubscribe(QUEUE)
        subscribed(subscriber)
        assert queue.subscriptions(QUEUE) == [NAME]


def test_unsubscribing_without_running_deletes_it_too(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    subscriber = make()
    subscribed(subscriber)
    with subscriber, pytest.raises(SubscriptionBusy):
        make().unsubscribe(QUEUE)
    make().unsubscribe(QUEUE)
    assert queue.subscriptions(QUEUE) == []
    with pytest.raises(UnknownSubscription):
        make().unsubscribe(QUEUE)
    with pytest.raises(UnknownQueue):
        make().unsubscribe("nothing")


@pytest.mark.parametrize("what", ["subscription", "queue"])
def test_what_is_deleted_under_a_subscriber_ends_it(queue: Catalog, make: Callable[..., Subscriber], what: str) -> None:
    subscriber = make()
    subscription = subscribed(subscriber)
    subscriber.start()
    if what == "queue":
        queue.delete_queue(QUEUE)
    else:
        queue.delete_subscription(QUEUE, NAME)
    with pytest.raises((UnknownSubscription, UnknownQueue)):
        subscriber.run()
    assert subscription.state == "deleted"


def test_a_running_subscriber_can_subscribe_to_more(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    queue.create_queue("ships", QueueSettings())
    subscriber = make()
    subscribed(subscriber)
    with subscriber:
        assert subscriber.subscribe("ships", start="earliest", listener=ignore).state == "attached"
        assert queue.listener("ships", NAME) is not None
        with pytest.raises(UnknownQueue):
            subscriber.subscribe("sheep", start="earliest", listener=ignore)
        assert sorted(subscriber.subscriptions) == ["flights", "ships"]


# -- losing the session


def test_after_its_session_ended_a_subscriber_attaches_again(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zk") as server:
        with ZooKeeperClient(server.address) as zk:
            catalog = open_catalog(zk)
            catalog.ensure_layout()
            catalog.create_queue(QUEUE, QueueSettings())

        async def story() -> None:
            events: list[Event] = []
            subscriber = AsyncSubscriber(NAME, server.address, session_timeout_seconds=2)
            subscriber.on_event(events.append)
            subscription = await subscriber.subscribe(QUEUE, start="earliest", listener=Noted())
            async with subscriber:
                await trio.to_thread.run_sync(server.stop)
                await eventually(lambda: subscription.state == "suspended", 10)
                await trio.sleep(3)  # a session and more
                await trio.to_thread.run_sync(server.start)
                await eventually(lambda: subscription.state == "attached", 30)
                await eventually(lambda: [event.kind for event in events] == ["attached", "suspended", "attached"])
                with ZooKeeperClient(server.address) as zk:
                    await eventually(lambda: open_catalog(zk).listener(QUEUE, NAME) is not None)
                    assert attached(open_catalog(zk)).port == subscriber.port

        play(story, 60)


def test_a_listener_node_that_somebody_removed_comes_back(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    subscriber = make()
    subscribed(subscriber)
    with subscriber:
        before = attached(queue)
        queue.detach(QUEUE, NAME, before)

        async def story() -> None:
            await eventually(lambda: queue.listener(QUEUE, NAME) == before)

        play(story)


def test_a_listener_comes_back_although_another_subscription_waits_for_a_host(
    queue: Catalog, make: Callable[..., Subscriber], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.create_queue("other", QueueSettings())
    subscriber, asked, answered = make(), threading.Event(), threading.Event()
    subscribed(subscriber)
    plan = SubscriberZooKeeper.plan

    def late(registration: SubscriberZooKeeper, request: Request) -> Plan:
        asked.set()
        assert answered.wait(20)
        return plan(registration, request)

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            more = partial(subscriber.subscribe, "other", start="earliest", listener=ignore)
            nursery.start_soon(trio.to_thread.run_sync, more)
            await eventually(asked.is_set)
            try:
                queue.detach(QUEUE, NAME, before)
                await eventually(lambda: queue.listener(QUEUE, NAME) == before)
            finally:
                answered.set()
        assert attached(queue, "other").port == subscriber.port

    with subscriber:
        before = attached(queue)
        monkeypatch.setattr(SubscriberZooKeeper, "plan", late)
        play(story)
