"""What a subscriber writes into ZooKeeper, keeps there and takes away; against whom it holds its name."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio

from delivery.embedded.ports import free_port
from delivery.errors import (
    ConfigError,
    HootError,
    InvalidRequest,
    MetadataUnavailable,
    NoHost,
    NotOwner,
    PortInUse,
    UnknownPartition,
    UnknownQueue,
)
from delivery.ids import MessageId, first_id_at
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.changes import SaveState, TakeState
from delivery.metastore.records import HostRecord
from delivery.metastore.tables.versions import Version, Versioned
from delivery.rpc.protocol import Call, load_idl
from delivery.rpc.server import ThriftServer, open_listeners
from subscriber import Subscriber
from tests.integration.subscribing import NAME, QUEUE, attached, ignore, play, subscribed

pytestmark = pytest.mark.integration


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
        before = queue.subscription(QUEUE, NAME)
        assert before is not None
        [taken] = queue.take_states([TakeState(before, 0, 1)])
        assert isinstance(taken, Versioned)
        moved = msgspec.structs.replace(taken.value, position=150)
        assert isinstance(queue.save_states([SaveState(QUEUE, NAME, 0, moved, taken.version)])[0], Version)
    second = make()
    subscribed(second, partitions=[0, 1, 2], topics=["JFK"], start="earliest")
    with second:
        record = queue.subscription(QUEUE, NAME)
        assert record is not None
        assert (record.starts, record.topics) == ({0: 99, 1: 199, 2: 0}, ("JFK",))
        assert record.created_ms == before.created_ms
        assert queue.states(QUEUE, NAME) == {0: moved}


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
    port = free_port(None)
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
