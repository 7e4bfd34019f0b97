"""A region host over its sockets: publishing, reading, the plain calls, HTTP, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delivery.batch import encode, headers_in, open_batch
from delivery.config import HostConfig
from delivery.errors import (
    ConfigError,
    CorruptRecord,
    HootError,
    HostUnreachable,
    InvalidRequest,
    MessageTooLarge,
    MetadataUnavailable,
    NotOwner,
    PortInUse,
    UnknownPartition,
    UnknownQueue,
    UnknownScanner,
)
from delivery.metastore.catalog import Catalog
from delivery.model import Message, QueueSettings
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.protocol import load_idl
from tests.hosting import batch
from tests.integration.hosts import RunningHost

pytestmark = pytest.mark.integration
IDL: Any = load_idl("delivery")


@pytest.fixture
def config(zookeeper_hosts: str, tmp_path: Path) -> HostConfig:
    return HostConfig(zookeeper=zookeeper_hosts, data=tmp_path / "data", grace_seconds=1.0)


@pytest.fixture
def host(config: HostConfig) -> Iterator[RunningHost]:
    with RunningHost(config) as running:
        yield running


@pytest.fixture
def orders(host: RunningHost, catalog: Catalog) -> str:
    """A queue of two partitions on `host`."""
    catalog.create_queue("orders", QueueSettings(partitions=2, body_bytes_max=2000))
    return "orders"


@pytest.fixture
def connection(host: RunningHost) -> Iterator[BlockingConnection]:
    with host.connect() as connection:
        yield connection


def request(
    after: int = 0, *, partition: int = 0, until: int = 0, wait_ms: int = 0, topics: tuple[str, ...] = ()
) -> Any:
    return IDL.ReadRequest(
        queue="orders", partition=partition, after=after, upTo=until, topics=list(topics), bytesMax=1 << 20,
        waitMs=wait_ms,
    )  # fmt: skip


def messages_of(reply: Any) -> list[Message]:
    data = bytes(reply.batches)
    return [m for at, header in headers_in(data) for m in open_batch(data[at : at + header.length]).messages("orders")]


def everything(connection: BlockingConnection) -> list[bytes]:
    """The bodies in partition 0, read to its end."""
    found: list[bytes] = []
    after = -1
    reply = connection.call("read", request())
    while reply.position > after:
        found += [m.body for m in messages_of(reply)]
        after = reply.position
        reply = connection.call("read", request(after))
    return found


def test_what_is_published_is_read_back_in_order(connection: BlockingConnection, orders: str) -> None:
    first = connection.call("publish", orders, 0, batch(b"a", b"b"))
    second = connection.call("publish", orders, 0, batch(b"c", topic="JFK"))
    assert (first.count, first.durability, first.duplicate) == (2, "fsync", False)
    assert second.baseId > first.baseId + 1
    reply = connection.call("read", request())
    found = messages_of(reply)
    assert [(m.body, m.topic, m.partition) for m in found] == [(b"a", "", 0), (b"b", "", 0), (b"c", "JFK", 0)]
    assert reply.position == reply.watermark == second.baseId
    assert messages_of(connection.call("read", request(after=first.baseId + 1)))[0].body == b"c"
    assert not connection.call("read", request(partition=1)).batches


def test_pipelined_batches_are_stored_in_the_order_in_which_they_were_sent(
    connection: BlockingConnection, orders: str
) -> None:
    """The first of them find a partition that nobody owns yet."""
    for n in range(60):
        connection.send("publish", orders, 1, batch(b"%d" % n, partition=1, producer=5, sequence=n))
    replies = [connection.receive()[1] for _ in range(60)]
    assert [reply.baseId for reply in replies] == sorted(reply.baseId for reply in replies)
    found = messages_of(connection.call("read", request(partition=1)))
    assert [m.body for m in found] == [b"%d" % n for n in range(60)]


def test_a_read_that_waits_returns_when_something_is_published(
    host: RunningHost, connection: BlockingConnection, orders: str
) -> None:
    replies: list[Any] = []

    def wait() -> None:
        with host.connect() as other:
            replies.append(other.call("read", request(wait_ms=20_000)))

    waiting = threading.Thread(target=wait)
    waiting.start()
    start = time.monotonic()
    connection.call("publish", orders, 0, batch(b"a"))
    waiting.join(10)
    assert time.monotonic() - start < 10
    assert [m.body for m in messages_of(replies[0])] == [b"a"]


def test_a_read_that_waits_in_vain_returns_empty_when_its_time_is_over(
    connection: BlockingConnection, orders: str
) -> None:
    start = time.monotonic()
    reply = connection.call("read", request(wait_ms=200))
    assert 0.19 < time.monotonic() - start < 5
    assert not reply.batches


def test_a_read_takes_only_the_topics_asked_for_and_moves_past_the_others(
    connection: BlockingConnection, orders: str
) -> None:
    rows = [(b"a", None, "JFK", b""), (b"b", None, "LGA", b""), (b"c", None, "JFK", b"")]
    connection.call("publish", orders, 0, encode(rows, 0))
    last = connection.call("publish", orders, 0, batch(b"d", topic="LGA")).baseId
    reply = connection.call("read", request(topics=("JFK",)))
    assert [m.body for m in messages_of(reply)] == [b"a", b"c"]
    assert reply.position == last
    reply = connection.call("read", request(topics=("EWR",)))
    assert (bytes(reply.batches), reply.position) == (b"", last)


def test_a_read_ends_where_it_was_told_to(connection: BlockingConnection, orders: str) -> None:
    bases = [connection.call("publish", orders, 0, batch(b"%d" % n)).baseId for n in range(4)]
    reply = connection.call("read", request(until=bases[1]))
    assert [m.body for m in messages_of(reply)] == [b"0", b"1"]
    assert reply.position == bases[1]
    reply = connection.call("read", request(after=bases[1], until=bases[1], wait_ms=20_000))
    assert not reply.batches


def test_bounds_and_counts(connection: BlockingConnection, orders: str) -> None:
    empty = connection.call("partitionInfo", orders, 0)
    assert (empty.firstId, empty.lastId, empty.messages, empty.epoch) == (0, 0, 0, 1)
    base = connection.call("publish", orders, 0, batch(*[b"x"] * 100)).baseId
    info = connection.call("partitionInfo", orders, 0)
    assert (info.firstId, info.lastId, info.messages) == (base, base + 99, 100)
    assert connection.call("countMessages", orders, 0, base + 9, 0) == 90
    assert connection.call("countMessages", orders, 0, base + 9, base + 19) == 10


def test_messages_and_producer_sequences_survive_a_restart(config: HostConfig, catalog: Catalog) -> None:
    catalog.create_queue("orders", QueueSettings())
    with RunningHost(config) as host, host.connect() as connection:
        first = connection.call("publish", "orders", 0, batch(b"a", producer=3, sequence=0))
    with RunningHost(config) as host, host.connect() as connection:
        again = connection.call("publish", "orders", 0, batch(b"a", producer=3, sequence=0))
        assert (again.baseId, again.duplicate) == (first.baseId, True)
        connection.call("publish", "orders", 0, batch(b"b", producer=3, sequence=1))
        assert everything(connection) == [b"a", b"b"]
        assert connection.call("partitionInfo", "orders", 0).epoch == 2


@pytest.mark.parametrize(
    ("queue", "partition", "data", "error"),
    [
        ("ordres", 0, batch(b"a"), UnknownQueue),
        ("orders", 2, batch(b"a", partition=2), UnknownPartition),
        ("orders", -1, batch(b"a"), UnknownPartition),
        ("orders", 1, batch(b"a"), InvalidRequest),
        ("orders", 0, batch(b"x" * 2001), MessageTooLarge),
        ("orders", 0, b"noise" * 40, CorruptRecord),
        ("orders", 0, b"", InvalidRequest),
        ("..", 0, batch(b"a"), InvalidRequest),
        ("a\r\nb\0", 0, batch(b"a"), InvalidRequest),
        ("x" * 10_000, 0, batch(b"a"), InvalidRequest),
    ],
)
def test_a_wrong_publish_is_refused_with_a_reason_and_nothing_is_stored(
    connection: BlockingConnection, orders: str, queue: str, partition: int, data: bytes, error: type[HootError]
) -> None:
    with pytest.raises(error) as caught:
        connection.call("publish", queue, partition, data)
    assert not caught.value.retryable
    assert len(caught.value.message) < 500
    assert connection.call("partitionInfo", orders, 0).messages == 0


def test_an_unknown_queue_is_answered_with_names_that_come_near(connection: BlockingConnection, orders: str) -> None:
    with pytest.raises(UnknownQueue, match="orders"):
        connection.call("partitionInfo", "ordrs", 0)


def test_the_plain_calls_put_and_scan(connection: BlockingConnection, orders: str) -> None:
    ids = connection.call(
        "putMessagesWithPid", orders, 1,
        [IDL.Message(topic="JFK", body=b"a", key=b"k", headers={"h": b"1"}), IDL.Message(topic="LGA", body=b"b")],
    )  # fmt: skip
    ids.append(connection.call("putMessageWithPid", orders, 0, IDL.Message(body=b"c")))
    anywhere = connection.call("putMessage", orders, IDL.Message(topic="JFK", body=b"d"))
    scanner = connection.call("openQueueScanner", orders, IDL.Scan())
    found = connection.call("messageScannerGetList", scanner, 100)
    assert [(m.id, m.body) for m in found] == sorted(zip([*ids, anywhere], [b"a", b"b", b"c", b"d"], strict=True))
    assert (found[0].topic, found[0].key, found[0].headers, found[0].partition) == ("JFK", b"k", {"h": b"1"}, 1)
    assert connection.call("messageScannerGet", scanner) == []
    later = connection.call("putMessages", orders, [IDL.Message(body=b"e"), IDL.Message(body=b"f")])
    assert [m.id for m in connection.call("messageScannerGetList", scanner, 100)] == later
    connection.call("messageScannerClose", scanner)
    connection.call("messageScannerClose", scanner)
    with pytest.raises(UnknownScanner):
        connection.call("messageScannerGet", scanner)


def test_plain_scanners_keep_to_their_partitions_topics_and_ids(connection: BlockingConnection, orders: str) -> None:
    ids = [
        connection.call(
            "putMessageWithPid", orders, n % 2, IDL.Message(topic="JFK" if n % 3 else "LGA", body=b"%d" % n)
        )
        for n in range(12)
    ]

    def scan(method: str, *args: Any) -> list[bytes]:
        scanner = connection.call(method, *args)
        return [m.body for m in connection.call("messageScannerGetList", scanner, 1000)]

    assert scan("openPartitionScanner", orders, 1, IDL.Scan()) == [b"1", b"3", b"5", b"7", b"9", b"11"]
    assert scan("openCombinedPartitionScanner", orders, [1, 0], IDL.Scan(topics=["LGA"])) == [b"0", b"3", b"6", b"9"]
    assert scan("openQueueScanner", orders, IDL.Scan(startId=ids[3], stopId=ids[6])) == [b"3", b"4", b"5"]
    with pytest.raises(InvalidRequest):
        connection.call("openCombinedPartitionScanner", orders, [], IDL.Scan())
    with pytest.raises(UnknownPartition):
        connection.call("openPartitionScanner", orders, 2, IDL.Scan())


def test_queue_locations_name_a_host_for_every_partition(
    host: RunningHost, connection: BlockingConnection, orders: str
) -> None:
    connection.call("publish", orders, 0, batch(b"a"))
    places = connection.call("getQueueLocations", orders)
    assert [(p.partition, p.host, p.port) for p in places] == [(n, "127.0.0.1", host.record.port) for n in (0, 1)]


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_http_tells_health_and_metrics(host: RunningHost, connection: BlockingConnection, orders: str) -> None:
    connection.call("publish", orders, 0, batch(b"a", b"b"))
    assert get(f"{host.http}/healthz") == (200, '{"status":"alive"}')
    assert json.loads(get(f"{host.http}/readyz")[1]) == {"ready": True, "reasons": []}
    status, text = get(f"{host.http}/metrics")
    assert status == 200
    assert 'hoot_published_messages_total{queue="orders"} 2.0' in text
    assert "hoot_connections 1.0" in text
    assert "hoot_owned_partitions 1.0" in text
    assert get(f"{host.http}/nothing")[0] == 404


def test_a_port_that_is_taken_is_an_error_and_nothing_stays_behind(config: HostConfig, catalog: Catalog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for field in ("port", "http_port"):
            busy = msgspec.structs.replace(config, **{field: port})
            with pytest.raises(PortInUse, match=str(port)), RunningHost(busy):
                pass
    assert catalog.hosts() == []


def test_settings_that_cannot_be_are_all_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        HostConfig(port=70_000, grace_seconds=-1, push_bytes=0, zookeeper=" ").check()
    assert all(word in caught.value.message for word in ("port", "grace_seconds", "push_bytes", "zookeeper"))


def test_without_a_zookeeper_the_start_says_so(config: HostConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        pytest.raises(MetadataUnavailable, match="no ZooKeeper answers"),
        RunningHost(msgspec.structs.replace(config, zookeeper=nobody)),
    ):
        pass


def test_a_host_that_stops_unregisters_and_another_takes_its_partitions_over(
    config: HostConfig, catalog: Catalog
) -> None:
    """Two hosts share a data folder; each partition has one owner at any time."""
    catalog.create_queue("orders", QueueSettings())
    with RunningHost(config) as second, second.connect() as to_second:
        with RunningHost(config) as first, first.connect() as to_first:
            assert {host.host for host in catalog.hosts()} == {first.record.host, second.record.host}
            to_first.call("publish", "orders", 0, batch(b"a"))
            with pytest.raises(NotOwner) as caught:
                to_second.call("publish", "orders", 0, batch(b"b"))
            assert caught.value.address == f"127.0.0.1:{first.record.port}"
        assert [host.host for host in catalog.hosts()] == [second.record.host]
        deadline = time.monotonic() + 10
        while True:
            try:
                to_second.call("publish", "orders", 0, batch(b"b"))
                break
            except NotOwner:
                assert time.monotonic() < deadline
        assert everything(to_second) == [b"a", b"b"]


def test_a_stopping_host_answers_what_it_took_and_closes_its_connections(config: HostConfig, catalog: Catalog) -> None:
    catalog.create_queue("orders", QueueSettings())
    with RunningHost(config) as host, host.connect() as connection:
        for n in range(20):
            connection.send("publish", "orders", 0, batch(b"x" * 1000, producer=1, sequence=n))
        assert connection.receive()[1].count == 1
        host.stop()
        outcomes: list[Any] = []
        with contextlib.suppress(HostUnreachable):
            outcomes += (connection.receive()[1] for _ in range(19))
    stored = 1 + sum(not isinstance(outcome, HootError) for outcome in outcomes)
    with RunningHost(config) as host, host.connect() as connection:
        assert connection.call("partitionInfo", "orders", 0).messages >= stored


def test_a_deleted_queue_is_gone_with_its_data_and_may_be_made_anew(
    connection: BlockingConnection, orders: str, catalog: Catalog, config: HostConfig
) -> None:
    connection.call("publish", orders, 0, batch(b"a"))
    folders = list((config.data / "queues").iterdir())
    assert len(folders) == 1
    catalog.delete_queue(orders)
    deadline = time.monotonic() + 10
    while folders[0].exists():
        assert time.monotonic() < deadline, "the data of the deleted queue is still there"
    with pytest.raises(UnknownQueue):
        connection.call("publish", orders, 0, batch(b"b"))
    catalog.create_queue(orders, QueueSettings())
    connection.call("publish", orders, 0, batch(b"c"))
    assert [m.body for m in messages_of(connection.call("read", request()))] == [b"c"]


def test_changed_settings_are_followed(connection: BlockingConnection, orders: str, catalog: Catalog) -> None:
    connection.call("publish", orders, 0, batch(b"a"))
    catalog.update_queue(orders, QueueSettings(partitions=2, durability="os"))
    deadline = time.monotonic() + 10
    while connection.call("publish", orders, 0, batch(b"b")).durability != "os":
        assert time.monotonic() < deadline, "the host still uses the old settings"
