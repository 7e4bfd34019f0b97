"""A region host over its sockets: publishing, reading, the plain calls, HTTP, and what it refuses."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any

import pytest

from delivery.batch import encode
from delivery.config import HostConfig
from delivery.errors import (
    CorruptRecord,
    HootError,
    InvalidRequest,
    MessageTooLarge,
    UnknownPartition,
    UnknownQueue,
    UnknownScanner,
)
from delivery.metastore import records
from delivery.metastore.catalog import Catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.protocol import load_idl
from tests.hosting import batch
from tests.integration.host_reads import everything, messages_of, request
from tests.integration.hosts import RunningHost

pytestmark = pytest.mark.integration
IDL: Any = load_idl("delivery")


def test_what_is_published_is_read_back_in_order(connection: BlockingConnection, orders: str) -> None:
    first = connection.call("publish", orders, 0, batch(b"a", b"b"), None)
    second = connection.call("publish", orders, 0, batch(b"c", topic="JFK"), None)
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
        connection.send("publish", orders, 1, batch(b"%d" % n, partition=1, producer=5, sequence=n), None)
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
    connection.call("publish", orders, 0, batch(b"a"), None)
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
    connection.call("publish", orders, 0, encode(rows, 0), None)
    last = connection.call("publish", orders, 0, batch(b"d", topic="LGA"), None).baseId
    reply = connection.call("read", request(topics=("JFK",)))
    assert [m.body for m in messages_of(reply)] == [b"a", b"c"]
    assert reply.position == last
    reply = connection.call("read", request(topics=("EWR",)))
    assert (bytes(reply.batches), reply.position) == (b"", last)


def test_a_read_ends_where_it_was_told_to(connection: BlockingConnection, orders: str) -> None:
    bases = [connection.call("publish", orders, 0, batch(b"%d" % n), None).baseId for n in range(4)]
    reply = connection.call("read", request(until=bases[1]))
    assert [m.body for m in messages_of(reply)] == [b"0", b"1"]
    assert reply.position == bases[1]
    reply = connection.call("read", request(after=bases[1], until=bases[1], wait_ms=20_000))
    assert not reply.batches


def test_bounds_and_counts(connection: BlockingConnection, orders: str) -> None:
    empty = connection.call("partitionInfo", orders, 0)
    assert (empty.firstId, empty.lastId, empty.messages, empty.epoch) == (0, 0, 0, 1)
    base = connection.call("publish", orders, 0, batch(*[b"x"] * 100), None).baseId
    info = connection.call("partitionInfo", orders, 0)
    assert (info.firstId, info.lastId, info.messages) == (base, base + 99, 100)
    assert connection.call("countMessages", orders, 0, base + 9, 0) == 90
    assert connection.call("countMessages", orders, 0, base + 9, base + 19) == 10
    assert connection.call("locateMessages", orders, 0, base + 9, 0, [1, 10, 91]) == [base + 10, base + 19, base + 99]
    assert connection.call("locateMessages", orders, 0, base + 9, base + 12, [5]) == [base + 12]


def test_messages_and_producer_sequences_survive_a_restart(config: HostConfig, catalog: Catalog) -> None:
    catalog.create_queue("orders", QueueSettings())
    with RunningHost(config) as host, host.connect() as connection:
        first = connection.call("publish", "orders", 0, batch(b"a", producer=3, sequence=0), None)
    with RunningHost(config) as host, host.connect() as connection:
        again = connection.call("publish", "orders", 0, batch(b"a", producer=3, sequence=0), None)
        assert (again.baseId, again.duplicate) == (first.baseId, True)
        connection.call("publish", "orders", 0, batch(b"b", producer=3, sequence=1), None)
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
        connection.call("publish", queue, partition, data, None)
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

    def by_id(wanted: Iterable[int]) -> list[bytes]:  # two partitions may give the same id in the same millisecond
        return [b"%d" % n for n in sorted(wanted, key=lambda n: (ids[n], n % 2))]

    assert scan("openPartitionScanner", orders, 1, IDL.Scan()) == [b"1", b"3", b"5", b"7", b"9", b"11"]
    assert scan("openCombinedPartitionScanner", orders, [1, 0], IDL.Scan(topics=["LGA"])) == by_id([0, 3, 6, 9])
    between = [n for n in range(12) if ids[3] <= ids[n] < ids[6]]
    assert scan("openQueueScanner", orders, IDL.Scan(startId=ids[3], stopId=ids[6])) == by_id(between)
    with pytest.raises(InvalidRequest):
        connection.call("openCombinedPartitionScanner", orders, [], IDL.Scan())
    with pytest.raises(UnknownPartition):
        connection.call("openPartitionScanner", orders, 2, IDL.Scan())


def test_queue_locations_name_a_host_for_every_partition(
    host: RunningHost, connection: BlockingConnection, orders: str
) -> None:
    connection.call("publish", orders, 0, batch(b"a"), None)
    places = connection.call("getQueueLocations", orders)
    assert [(p.partition, p.host, p.port) for p in places] == [(n, "127.0.0.1", host.record.port) for n in (0, 1)]


def test_a_damaged_record_of_another_host_does_not_hide_the_queues_locations(
    host: RunningHost, connection: BlockingConnection, orders: str, zookeeper_hosts: str
) -> None:
    with ZooKeeperClient(zookeeper_hosts) as other:
        other.create(records.host_path("damaged"), b"{")
    places = connection.call("getQueueLocations", orders)
    assert [place.port for place in places] == [host.record.port] * 2


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_http_tells_health_and_metrics(host: RunningHost, connection: BlockingConnection, orders: str) -> None:
    connection.call("publish", orders, 0, batch(b"a", b"b"), None)
    assert get(f"{host.http}/healthz") == (200, '{"status":"alive"}')
    assert json.loads(get(f"{host.http}/readyz")[1]) == {"ready": True, "reasons": []}
    status, text = get(f"{host.http}/metrics")
    assert status == 200
    assert 'hoot_published_messages_total{queue="orders"} 2.0' in text
    assert "hoot_connections 1.0" in text
    assert "hoot_owned_partitions 1.0" in text
    assert get(f"{host.http}/nothing")[0] == 404
