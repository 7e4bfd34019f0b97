"""What a subscriber can ask for wrongly, and hosts and clients that are sent to the wrong place.

Each gets an error with a code and a word on whether to try again, in one line. ZooKeeper and the queue stay as they
are.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from delivery import connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import (
    ConfigError,
    EmbeddedError,
    InvalidRequest,
    MetadataUnavailable,
    SubscriptionBusy,
    UnknownPartition,
    UnknownQueue,
)
from delivery.ids import ID_MAX, MessageId
from delivery.local import HostProcess
from subscriber import Event, Message, Subscriber
from tests.integration.asking import QUEUE, Site, asked, refused
from tests.integration.embedded import eventually
from tests.integration.engine import RecordingSubscriber
from tests.saving import is_saved

pytestmark = pytest.mark.integration

WRONG_STARTS: Sequence[Any] = (
    "", "now", "12x", "1-2-3", "-5", " 12", "1-32768", "9" * 20, "9" * 10_000, "١٢٣", "1\n", "1\0", -1, ID_MAX + 1,
    2**64, 1.5, True, None, b"1", datetime.now(), "2024-01-01", ["earliest"],  # noqa: DTZ005 (a time without a zone)
)  # fmt: skip
WRONG_PARTITIONS: Sequence[Any] = ([], ["0"], "01", [1.5], [True], [None], 1.5, {0: "now"}, {"0": "latest"})
WRONG_TOPICS: Sequence[Any] = ("", [], ["a b"], ["JFK", ".."], "x" * 250, [b"JFK"], [None], ["x"] * 1001)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bad-subscriptions")


@pytest.fixture(scope="module")
def site(zookeeper: EmbeddedZooKeeper, folder: Path) -> Iterator[Site]:
    with asked(zookeeper, folder) as found:
        yield found


def ignore(message: Message) -> None:
    pass


# -- what is asked for ----------------------------------------------------------------------------------------------


def test_what_is_no_start_no_partition_or_no_topic_is_refused_at_once(site: Site) -> None:
    subscribe = site.subscriber().subscribe
    with site.unchanged():
        for start in WRONG_STARTS:
            error = refused(InvalidRequest, "", subscribe, QUEUE, start=start)
            assert (error.code, error.retryable) == ("invalid_request", False)
            refused(InvalidRequest, "", subscribe, QUEUE, start={0: start})
            refused(InvalidRequest, "", subscribe, QUEUE, partitions={0: start})
        for partitions in WRONG_PARTITIONS:
            refused(InvalidRequest, "", subscribe, QUEUE, partitions=partitions)
        for topics in WRONG_TOPICS:
            refused(InvalidRequest, "", subscribe, QUEUE, topics=topics)
        refused(InvalidRequest, "twice", subscribe, QUEUE, partitions={0: "latest"}, start={0: "latest"})
        refused(InvalidRequest, "not among", subscribe, QUEUE, partitions=0, start={1: "latest"})


@pytest.mark.parametrize("partitions", [2, -1, [0, 2], [32_767], [10**30], {0: "latest", 7: "earliest"}], ids=str)
def test_partitions_that_the_queue_lacks_are_refused_at_the_start(site: Site, partitions: Any) -> None:
    subscriber = site.subscriber()
    subscriber.subscribe(QUEUE, partitions=partitions, listener=ignore)
    with site.unchanged():
        error = refused(UnknownPartition, "0 to 1", subscriber.start)
        assert (error.code, error.retryable) == ("unknown_partition", False)


@pytest.mark.parametrize("start", [
    pytest.param(MessageId.of(int(time.time() * 1000) + 3_600_000), id="in an hour"), str(MessageId(ID_MAX)), ID_MAX,
    pytest.param(datetime.now(UTC) + timedelta(days=1), id="tomorrow"), datetime.max.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
], ids=str)  # fmt: skip
def test_a_start_in_the_future_is_refused_at_the_start(site: Site, start: Any) -> None:
    subscriber = site.subscriber()
    subscriber.subscribe(QUEUE, start=start, listener=ignore)
    with site.unchanged():
        error = refused(InvalidRequest, "lies in the future", subscriber.start)
        assert (error.code, error.retryable) == ("invalid_request", False)


def test_an_unknown_queue_is_named_with_what_comes_near_at_the_start(site: Site) -> None:
    """Of two subscriptions, the one that could be is not written either."""
    subscriber = site.subscriber()
    subscriber.subscribe(QUEUE, listener=ignore)
    subscriber.subscribe("fligths", listener=ignore)
    with site.unchanged():
        assert not refused(UnknownQueue, "did you mean flights?", subscriber.start).retryable


class Wrong:
    def __call__(self, message: Message, more: int) -> None: ...

    def generator(self, message: Message) -> Iterator[int]:
        yield 1

    async def two(self, message: Message, more: int) -> None: ...


def needs_keyword(message: Message, *, more: int) -> None: ...


WRONG_LISTENERS: Sequence[Any] = (
    lambda: None, lambda message, more: None, Wrong(), Wrong.two, Wrong().two, Wrong().generator,
    partial(lambda message: None, 1), needs_keyword, "ignore", 7, b"", object(), [ignore],
)  # fmt: skip


def test_callbacks_that_cannot_take_a_message_are_refused_when_they_are_given(site: Site) -> None:
    subscriber = site.subscriber()
    subscription = subscriber.subscribe(QUEUE)
    with site.unchanged():
        for wrong in WRONG_LISTENERS:
            for add in (subscription.listener, subscription.batch_listener, subscriber.listener, subscriber.on_event):
                refused(InvalidRequest, "", add, wrong)
            refused(InvalidRequest, "", site.subscriber().subscribe, QUEUE, listener=wrong)
            refused(InvalidRequest, "", site.subscriber().subscribe, QUEUE, batch_listener=wrong)
        refused(InvalidRequest, "no listener", subscriber.start)
        refused(InvalidRequest, "nothing to start", site.subscriber().start)


# -- two under one name ---------------------------------------------------------------------------------------------


def test_a_second_subscriber_of_a_name_is_refused_unless_it_forces_and_the_first_is_told(
    site: Site, folder: Path
) -> None:
    first = RecordingSubscriber(site.running, QUEUE, folder, name="twice")
    first.start()
    second, forced = site.subscriber("twice"), site.subscriber("twice", force=True)
    for one in (second, forced):
        one.subscribe(QUEUE, topics="JFK", listener=ignore)
    try:
        taken = re.compile(r"/states/.*twice")
        eventually(lambda: len([path for path in site.tree() if taken.search(path)]) == 2, "the host has begun")
        eventually(lambda: is_saved(site.client, QUEUE, "twice"), "all is acknowledged, and that is saved")
        with site.unchanged():
            error = refused(SubscriptionBusy, "which is alive", second.start)
            listener = site.client.subscription_info(QUEUE, "twice").listener
            assert (error.code, error.retryable, error.address) == ("subscription_busy", False, listener)
            refused(SubscriptionBusy, "which is alive", second.unsubscribe, QUEUE)
        with forced:
            assert first.process is not None
            assert first.process.wait(20) == 1, "the first subscriber ends with an error"
            assert site.client.subscription_info(QUEUE, "twice").listener == f"127.0.0.1:{forced.port}"
    finally:
        first.kill()


def test_after_a_takeover_messages_come_to_the_second_alone(site: Site) -> None:
    took: dict[str, list[bytes]] = {"first": [], "second": []}
    events: list[Event] = []
    first, second = site.subscriber("heir"), site.subscriber("heir", force=True)
    for name, one in (("first", first), ("second", second)):
        one.subscribe(QUEUE, listener=lambda message, name=name: took[name].append(message.body))
    first.on_event(events.append)
    with first:
        site.queue.put(b"before", partition=0)
        eventually(lambda: took["first"] == [b"before"], "the first subscriber gets its message")
        eventually(lambda: site.client.subscription_info(QUEUE, "heir").lag == 0, "it is acknowledged")
        with second:
            eventually(lambda: first.subscriptions[QUEUE].state == "taken_over", "the first is told")
            site.queue.put(b"after", partition=0)
            eventually(lambda: took["second"] == [b"after"], "the second subscriber gets the next")
    assert took["first"] == [b"before"]
    assert [event.kind for event in events] == ["attached", "taken_over"]
    assert isinstance(events[-1].error, SubscriptionBusy)


# -- wrong places ---------------------------------------------------------------------------------------------------


@contextmanager
def other_service() -> Iterator[int]:
    """A program that is no ZooKeeper: it says something and closes."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"220 mail.example.org ESMTP\r\n")

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def starts(address: str) -> list[Callable[[], object]]:
    """What begins with the address of a ZooKeeper."""

    def subscribe() -> None:
        subscriber = Subscriber("auditor", address)
        subscriber.subscribe(QUEUE, listener=ignore)
        subscriber.start()

    return [
        lambda: connect(address, deadline=1.0).close(), subscribe,
        lambda: Subscriber("auditor", address).unsubscribe(QUEUE),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "address",
    ["host:port:port", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-1", "a b:2181", "http://127.0.0.1:2181",
     "127.0.0.1:2181,", "127.0.0.1/../x", "127.0.0.1/a//b", "x" * 300, "a\r\nb", "a\0b", " ", ","],
    ids=lambda address: repr(address)[:24],
)  # fmt: skip
def test_a_zookeeper_address_that_cannot_be_read_is_refused_at_once(address: str) -> None:
    began = time.monotonic()
    for call in starts(address):
        assert not refused(ConfigError, "", call).retryable
    assert time.monotonic() - began < 10


def test_where_no_zookeeper_answers_the_start_says_so_in_time() -> None:
    with closing(socket.socket()) as unheard, other_service() as other:
        unheard.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{port}" for port in (unheard.getsockname()[1], other)]
        calls = [(address, call) for address in addresses for call in starts(address)]
        began = time.monotonic()
        with ThreadPoolExecutor(len(calls)) as threads:
            errors = threads.map(lambda call: refused(MetadataUnavailable, *call), calls)
            assert {(error.code, error.retryable) for error in errors} == {("metadata_unavailable", True)}
        assert time.monotonic() - began < 20


def test_a_folder_of_zookeeper_that_holds_nothing_of_hoot_says_what_to_do(site: Site) -> None:
    with connect(f"{site.running.address}/elsewhere") as client:
        refused(MetadataUnavailable, "hoot serve", client.create_queue, QUEUE)
        refused(UnknownQueue, "hoot queue create", client.queue, QUEUE)
        assert (client.queues(), client.hosts()) == ([], [])


def refused_host(site: Site, data: Path) -> str:
    """Start a host on a data folder that it cannot use; what it says."""
    host = HostProcess(site.running.address, data)
    try:
        with pytest.raises(EmbeddedError, match="did not start") as caught:
            host.start()
    finally:
        host.stop()
    assert "Traceback" not in caught.value.message
    return [line for line in caught.value.message.splitlines() if line.startswith("error: ")][-1]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_host_refuses_data_of_another_layout_and_touches_nothing(site: Site, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "queues").mkdir(parents=True)
    for layout in (b'{"kind":"log","version":99}', b'{"kind":"tape","version":1}', b"not json", b""):
        (data / "layout.json").write_bytes(layout)
        before = contents(data)
        with site.unchanged():
            assert "layout" in refused_host(site, data)
        assert contents(data) == before


def test_a_host_refuses_a_data_folder_that_is_a_file_or_below_one(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    with site.unchanged():
        assert str(file) in refused_host(site, file)
        (tmp_path / "sub").mkdir()
        link = tmp_path / "sub" / "nowhere"
        link.symlink_to(tmp_path / "missing" / "deep" / "er")
        assert refused_host(site, link)
    assert file.read_bytes() == b"mine"


def test_a_host_refuses_a_zookeeper_tree_of_another_layout_and_touches_nothing(site: Site, tmp_path: Path) -> None:
    site.znodes.create(
        "/newer/hoot/metastore/layout", b'{"metastore":"zookeeper","metastore_version":2}', makepath=True
    )
    before = site.tree("/newer")
    host = HostProcess(f"{site.running.address}/newer", tmp_path / "data")
    try:
        with pytest.raises(EmbeddedError, match="metadata is in the MetaStore 'zookeeper', version 2"):
            host.start()
    finally:
        host.stop()
    assert site.tree("/newer") == before
