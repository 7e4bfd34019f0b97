"""What a subscriber writes into ZooKeeper, keeps there and takes away; against whom it holds its name."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import (
    ConfigError,
    HootError,
    InvalidRequest,
    MetadataUnavailable,
    NoHost,
    NotOwner,
    PortInUse,
    SubscriptionBusy,
    UnknownPartition,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.ids import MessageId, first_id_at
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import Checkpoint, HostRecord, ListenerRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import Message, QueueSettings
from delivery.rpc.protocol import Call, load_idl
from delivery.rpc.server import ThriftServer, open_listeners
from subscriber import AsyncSubscriber, Event, Subscriber
from subscriber.subscription import Subscription
from tests.hosting import eventually
from tests.integration.metastore import update
from tests.integration.subscribing import NAME, QUEUE, Noted, attached, play

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]

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


def ignore(message: Message) -> None: ...


@pytest.fixture
def queue(catalog: Catalog) -> Catalog:
    """The catalog with the queue."""
    catalog.create_queue(QUEUE, QueueSettings(partitions=3))
    return catalog


@pytest.fixture
def make(zookeeper_hosts: str) -> Iterator[Callable[..., Subscriber]]:
    """Makes subscribers of one name that are stopped in the end."""
    made: list[Subscriber] = []

    def maker(name: str = NAME, **more: Any) -> Subscriber:
        made.append(Subscriber(name, zookeeper_hosts, **more))
        return made[-1]

    yield maker
    for one in made:
        one.stop()


def subscribed(subscriber: Subscriber, **more: Any) -> Subscription:
    return subscriber.subscribe(QUEUE, **{"start": "earliest", "listener": ignore, **more})


class Answering:
    """A region host of which only the last ids of partitions are asked."""

    def __init__(self, last_ids: dict[int, int | HootError]) -> None:
        self.last_ids = last_ids
        self.asked: list[int] = []

    def begin(self, call: Call) -> Callable[[], Any]:
        async def answer() -> object:
            await trio.lowlevel.checkpoint()
            self.asked.append(call.args.partition)
            last = self.last_ids[call.args.partition]
            if isinstance(last, HootError):
                self.last_ids[call.args.partition] = 7
                raise last
            info = load_idl("delivery").PartitionInfo
            return info(partition=call.args.partition, firstId=1, lastId=last, messages=1, bytes=1, epoch=1)

        return answer


def asking(catalog: Catalog, host: Answering, story: Callable[[], None], *, registered: int = 1) -> None:
    """Run a blocking story while `host` serves, registered under one or more ids."""

    async def run() -> None:
        listeners = await open_listeners("127.0.0.1", 0)
        port = listeners[0].socket.getsockname()[1]
        for number in range(registered):
            catalog.register_host(HostRecord(f"h{number}", "127.0.0.1", port, None, 1, "1", 1))
        async with trio.open_nursery() as nursery:
            await nursery.start(ThriftServer(listeners, "RegionHost", host).run)
            await trio.to_thread.run_sync(story)
            nursery.cancel_scope.cancel()

    play(run)


# -- what is written


def test_starting_writes_the_durable_record_and_the_listener(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    subscriber = make()
    subscription = subscribed(subscriber, partitions={0: "earliest", 2: 500}, topics=["JFK", "LGA"])
    assert (str(subscription), queue.subscriptions(QUEUE)) == ("<Subscription audit on flights, new>", [])
    with subscriber:
        assert str(subscription) == "<Subscription audit on flights, attached>"
        record = queue.subscription(QUEUE, NAME)
        assert record is not None
        assert (record.starts, record.all_partitions, record.topics) == ({0: 0, 2: 499}, False, ("JFK", "LGA"))
        assert record.generation == queue.queue(QUEUE).generation
        listener = attached(queue)
        assert (listener.address, listener.port, listener.protocol) == ("127.0.0.1", subscriber.port, "packed")
    assert str(subscription) == "<Subscription audit on flights, stopped>"
    assert queue.listener(QUEUE, NAME) is None
    assert queue.subscription(QUEUE, NAME) == record


def test_latest_is_the_last_id_that_the_owner_tells(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    host = Answering({0: 10, 1: 0, 2: 30})

    def story() -> None:
        subscriber = make()
        subscribed(subscriber, start="latest")
        with subscriber:
            record = queue.subscription(QUEUE, NAME)
            assert record is not None
            assert record.starts == {0: 10, 1: 0, 2: 30}

    asking(queue, host, story)


def test_a_host_that_does_not_own_the_partition_yet_is_asked_again(
    queue: Catalog, make: Callable[..., Subscriber]
) -> None:
    host = Answering({0: NotOwner("another one is"), 1: 5, 2: 6})

    def story() -> None:
        subscriber = make()
        subscribed(subscriber, start="latest", partitions=[0])
        with subscriber:
            record = queue.subscription(QUEUE, NAME)
            assert record is not None
            assert record.starts == {0: 7}
        assert host.asked == [0, 0]

    asking(queue, host, story, registered=2)


def test_latest_without_any_region_host_is_refused_with_what_to_do(
    queue: Catalog, make: Callable[..., Subscriber]
) -> None:
    subscriber = make()
    subscribed(subscriber, start="latest")
    with pytest.raises(NoHost, match="hoot serve"):
        subscriber.start()
    assert queue.subscriptions(QUEUE) == []


def test_a_start_in_the_future_is_refused_and_nothing_is_written(
    queue: Catalog, make: Callable[..., Subscriber]
) -> None:
    host = Answering({0: first_id_at(int(time.time() * 1000)), 1: 0, 2: 0})
    later = MessageId.of(int(time.time() * 1000) + 3_600_000)

    def story() -> None:
        subscriber = make()
        subscribed(subscriber, start=later)
        with pytest.raises(InvalidRequest, match="lies in the future of partition 0"):
            subscriber.start()
        assert queue.subscriptions(QUEUE) == []

    asking(queue, host, story)


def test_starting_again_goes_on_with_the_record_and_its_checkpoints(
    queue: Catalog, make: Callable[..., Subscriber]
) -> None:
    first = make()
    subscribed(first, partitions={0: 100, 1: 200})
    with first:
        _, version = queue.partition(QUEUE, 0)
        queue.claim(QUEUE, 0, "h", 1, version)
        queue.save_checkpoints([update(0, 150, name=NAME, queue=QUEUE, version=version + 1)])
    before = queue.subscription(QUEUE, NAME)
    second = make()
    subscribed(second, partitions=[0, 1, 2], topics=["JFK"], start="earliest")
    with second:
        record = queue.subscription(QUEUE, NAME)
        assert record is not None
        assert before is not None
        assert (record.starts, record.topics) == ({0: 99, 1: 199, 2: 0}, ("JFK",))
        assert record.created_ms == before.created_ms
        assert queue.checkpoints(QUEUE, NAME) == {0: Checkpoint(150, 1)}


def test_the_advertised_address_is_what_is_registered(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    subscriber = make(host="0.0.0.0", advertise="localhost")
    subscribed(subscriber)
    with subscriber:
        assert attached(queue).address == "localhost"


# -- what is refused, with nothing written


def test_an_unknown_queue_is_named_with_its_neighbours(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    subscriber = make()
    subscribed(subscriber)
    subscriber.subscribe("flihgts", start="earliest", listener=ignore)
    with pytest.raises(UnknownQueue, match="did you mean flights"):
        subscriber.start()
    assert queue.subscriptions(QUEUE) == []


def test_a_partition_out_of_range_is_refused(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    subscriber = make()
    subscribed(subscriber, partitions=[0, 3])
    with pytest.raises(UnknownPartition, match="partitions 0 to 2"):
        subscriber.start()
    assert queue.subscriptions(QUEUE) == []


def test_a_subscription_without_a_listener_is_refused(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    subscriber = make()
    subscribed(subscriber, listener=None)
    with pytest.raises(InvalidRequest, match="has no listener"):
        subscriber.start()
    with pytest.raises(InvalidRequest, match="nothing to start"):
        make().start()
    assert queue.subscriptions(QUEUE) == []


def test_a_port_that_is_taken_is_refused(queue: Catalog, make: Callable[..., Subscriber]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        subscriber = make(port=taken.getsockname()[1])
        subscribed(subscriber)
        with pytest.raises(PortInUse) as caught:
            subscriber.start()
    assert (caught.value.code, caught.value.retryable) == ("port_in_use", False)
    assert queue.subscriptions(QUEUE) == []
    subscriber.start()


def test_without_zookeeper_the_start_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    subscriber = Subscriber(NAME, f"127.0.0.1:{port}")
    subscribed(subscriber)
    with pytest.raises(MetadataUnavailable, match=f"127.0.0.1:{port}"):
        subscriber.start()


@pytest.mark.parametrize("name", ["", "..", "a/b", "%2e%2e", "a\r\nb", "a\0b", "x" * 10_000, None])
def test_bad_names_are_refused_at_once(name: Any) -> None:
    with pytest.raises(InvalidRequest, match="no subscription name"):
        Subscriber(name)
    with pytest.raises(InvalidRequest, match="no queue name"):
        Subscriber(NAME).subscribe(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": -1}, {"port": 65536}, {"port": "x"}, {"host": "a b"}, {"host": "x" * 300}, {"advertise": 5},
        {"zookeeper": ""}, {"zookeeper": "nowhere:port"}, {"grace_seconds": -1}, {"session_timeout_seconds": 0},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    def start() -> None:
        subscriber = Subscriber(NAME, **wrong)
        subscribed(subscriber)
        subscriber.start()

    with pytest.raises(ConfigError):
        start()


def test_a_queue_is_subscribed_to_once(make: Callable[..., Subscriber]) -> None:
    subscriber = make()
    subscribed(subscriber)
    with pytest.raises(InvalidRequest, match="already"):
        subscribed(subscriber)


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
            assert time.monotonic() - began < 5
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
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
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
            catalog = Catalog(zk)
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
                    await eventually(lambda: Catalog(zk).listener(QUEUE, NAME) is not None)
                    assert attached(Catalog(zk)).port == subscriber.port

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
