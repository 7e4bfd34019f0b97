"""Stock Apache Thrift against a region host in a process of its own: as a client, and as a plain listener.

What a program in any language does, with nothing of Hoot in it: the calls are written by hand with Apache's protocol
and transports (apache.py), and the host is found, and the listener registered, by JSON in ZooKeeper.
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient
from thrift.Thrift import TType

from delivery.batch import encode
from delivery.local import LocalEngine
from delivery.metastore.catalog import Catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from delivery.rpc.blocking import BlockingConnection
from tests.integration.apache import SECONDS, Client, DeclaredError, Fields, Server
from tests.integration.embedded import client as zookeeper_session, eventually
from tests.integration.engine import engine

pytestmark = pytest.mark.integration

OK, FAILED = 0, 1
KIB = 1024
RETRY_SECONDS = 0.3
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    with engine(tmp_path_factory.mktemp("plain"), "--set", f"retry_delay_seconds={RETRY_SECONDS}") as found:
        yield found


@pytest.fixture(scope="module")
def znodes(running: LocalEngine) -> Iterator[KazooClient]:
    """ZooKeeper as a foreign program uses it."""
    with zookeeper_session(running.address) as found:
        yield found


@pytest.fixture(scope="module")
def port(znodes: KazooClient) -> int:
    """The host's, as it says in ZooKeeper."""
    (host,) = znodes.get_children("/hoot/hosts")
    record = read_json(znodes, f"/hoot/hosts/{host}")
    assert record["address"] == "127.0.0.1"
    found: int = record["port"]
    return found


@pytest.fixture
def client(port: int) -> Iterator[Client]:
    with Client(port) as found:
        yield found


@pytest.fixture
def flights(running: LocalEngine) -> str:
    """A new queue of three partitions."""
    name = f"flights-{next(NUMBERS)}"
    with ZooKeeperClient(running.address) as session:
        Catalog(session).create_queue(name, QueueSettings(partitions=3, body_bytes_max=1000))
    return name


def read_json(znodes: KazooClient, path: str) -> Any:
    return json.loads(znodes.get(path)[0])


# -- the arguments of calls, as (type, value) ---------------------------------------------------------------------


def text(value: str | bytes) -> tuple[int, Any]:
    return TType.STRING, value


def i32(value: int) -> tuple[int, Any]:
    return TType.I32, value


def struct(fields: Fields) -> tuple[int, Any]:
    return TType.STRUCT, fields


def structs(fields: list[Fields]) -> tuple[int, Any]:
    return TType.LIST, (TType.STRUCT, fields)


def partitions(*numbers: int) -> tuple[int, Any]:
    return TType.LIST, (TType.I32, list(numbers))


def message(
    body: bytes, topic: str | None = None, key: bytes | None = None, headers: dict[str, bytes] | None = None
) -> Fields:
    fields: Fields = {6: text(body)}
    if topic is not None:
        fields[3] = text(topic)
    if key is not None:
        fields[4] = text(key)
    if headers is not None:
        fields[5] = (TType.MAP, (TType.STRING, TType.STRING, headers))
    return fields


def scan(start: int | None = None, stop: int | None = None, *topics: str) -> tuple[int, Any]:
    fields: Fields = {3: (TType.LIST, (TType.STRING, list(topics)))}
    if start is not None:
        fields[1] = (TType.I64, start)
    if stop is not None:
        fields[2] = (TType.I64, stop)
    return struct(fields)


def put(client: Client, queue: str, partition: int, *messages: Fields) -> list[int]:
    found: list[int] = client.result("putMessagesWithPid", text(queue), i32(partition), structs(list(messages)))
    return found


def drained(client: Client, scanner: int, count: int = 100) -> list[dict[int, Any]]:
    """Everything that a scanner has now."""
    found: list[dict[int, Any]] = []
    while got := client.result("messageScannerGetList", i32(scanner), i32(count)):
        found += got
    return found


def stored(client: Client, queue: str) -> list[dict[int, Any]]:
    """Everything in a queue."""
    scanner = client.result("openQueueScanner", text(queue), scan())
    found = drained(client, scanner)
    client.result("messageScannerClose", i32(scanner))
    return found


# -- as a client ----------------------------------------------------------------------------------------------------


def test_a_message_comes_back_with_its_key_headers_topic_and_body(client: Client, flights: str) -> None:
    headers = {"event-time": b"\0\xff", "Größe": b""}
    body = bytes(range(256))
    put_id = client.result("putMessage", text(flights), struct(message(body, "JFK", b"\xfeUA", headers)))
    (found,) = stored(client, flights)
    assert found.pop(2) in (0, 1, 2)
    assert found == {
        1: put_id, 3: b"JFK", 4: b"\xfeUA", 5: {name.encode(): value for name, value in headers.items()}, 6: body,
    }  # fmt: skip
    assert abs((put_id >> 15) / 1000 - time.time()) < 60


def test_an_absent_key_stays_absent_and_an_empty_one_empty(client: Client, flights: str) -> None:
    put(client, flights, 0, message(b"", key=b""), message(b""))
    with_key, without = stored(client, flights)
    assert (with_key[4], with_key[3], with_key[5], with_key[6]) == (b"", b"", {}, b"")
    assert 4 not in without


def test_a_message_without_a_partition_goes_to_a_random_one(client: Client, flights: str) -> None:
    for n in range(40):
        client.result("putMessage", text(flights), struct(message(b"%d" % n)))
    assert {found[2] for found in stored(client, flights)} == {0, 1, 2}


def test_a_message_with_a_partition_goes_there(client: Client, flights: str) -> None:
    put_id = client.result("putMessageWithPid", text(flights), i32(2), struct(message(b"a")))
    assert [(found[1], found[2], found[6]) for found in stored(client, flights)] == [(put_id, 2, b"a")]


def test_messages_put_together_stay_together_in_order(client: Client, flights: str) -> None:
    bodies = [b"%d" % n for n in range(500)]
    ids = client.result("putMessages", text(flights), structs([message(body) for body in bodies]))
    found = stored(client, flights)
    assert [one[6] for one in found] == bodies
    assert [one[1] for one in found] == ids == list(range(ids[0], ids[0] + 500))
    assert len({one[2] for one in found}) == 1


def test_a_queue_scanner_merges_all_partitions_by_id(client: Client, flights: str) -> None:
    ids = [put_id for n in range(12) for put_id in put(client, flights, n % 3, message(b"%d" % n))]
    found = stored(client, flights)
    assert sorted(one[1] for one in found) == [one[1] for one in found]
    assert sorted(ids) == sorted(one[1] for one in found)
    assert {one[6]: one[2] for one in found} == {b"%d" % n: n % 3 for n in range(12)}


def test_a_partition_scanner_gives_one_message_at_a_time_and_goes_on_at_the_end(client: Client, flights: str) -> None:
    put(client, flights, 0, message(b"other"))
    first, second = put(client, flights, 1, message(b"a"), message(b"b"))
    scanner = client.result("openPartitionScanner", text(flights), i32(1), scan())
    get = [client.result("messageScannerGet", i32(scanner)) for _ in range(3)]
    assert [[(one[1], one[6]) for one in got] for got in get] == [[(first, b"a")], [(second, b"b")], []]
    put(client, flights, 1, message(b"c"))
    assert [one[6] for one in client.result("messageScannerGet", i32(scanner))] == [b"c"]


def test_a_combined_scanner_keeps_to_its_partitions_ids_and_topics(client: Client, flights: str) -> None:
    """The start is the first id wanted, the stop the first id not wanted."""
    topics = ["JFK", "LGA", "EWR", "JFK"]
    ids = {
        partition: put(client, flights, partition, *[message(topic.encode(), topic) for topic in topics])
        for partition in (0, 1, 2)
    }
    wanted = scan(ids[0][1], ids[2][3], "JFK", "EWR")
    scanner = client.result("openCombinedPartitionScanner", text(flights), partitions(2, 0, 2), wanted)
    found = drained(client, scanner, count=2)
    expected = [ids[0][2], ids[0][3], ids[2][0], ids[2][2]]
    assert sorted(expected) == [one[1] for one in found]
    assert [one[6] for one in found if one[2] == 0] == [b"EWR", b"JFK"]


def test_get_list_gives_at_most_what_was_asked_for(client: Client, flights: str) -> None:
    put(client, flights, 0, *[message(b"%d" % n) for n in range(25)])
    scanner = client.result("openPartitionScanner", text(flights), i32(0), None)
    sizes = [len(client.result("messageScannerGetList", i32(scanner), i32(10))) for _ in range(4)]
    assert sizes == [10, 10, 5, 0]


def test_lists_whose_headers_and_keys_outweigh_their_bodies_fit_their_frames_and_lose_nothing(
    client: Client, flights: str
) -> None:
    heavy = [message(b"%d" % n, key=bytes(30 * KIB), headers={"h": bytes(60 * KIB)}) for n in range(100)]
    ids = [one for _ in range(2) for one in put(client, flights, 0, *heavy)]
    scanner = client.result("openPartitionScanner", text(flights), i32(0), scan())
    assert [one[1] for one in drained(client, scanner, count=10_000)] == ids


def test_closing_a_scanner_twice_is_fine_and_using_it_then_is_an_error(client: Client, flights: str) -> None:
    scanner = client.result("openQueueScanner", text(flights), scan())
    assert client.result("messageScannerClose", i32(scanner)) is None
    assert client.result("messageScannerClose", i32(scanner)) is None
    for call in (("messageScannerGet", i32(scanner)), ("messageScannerGetList", i32(scanner), i32(5))):
        with pytest.raises(DeclaredError) as caught:
            client.result(*call)
        assert (caught.value.code, caught.value.retryable) == ("unknown_scanner", False)


def test_a_scanner_lives_longer_than_the_connection_that_opened_it(client: Client, port: int, flights: str) -> None:
    put(client, flights, 0, message(b"a"))
    with Client(port) as other:
        scanner = other.result("openQueueScanner", text(flights), scan())
    assert [one[6] for one in drained(client, scanner)] == [b"a"]


def test_the_locations_of_a_queue_name_a_host_that_answers_for_every_partition(
    client: Client, port: int, flights: str
) -> None:
    put(client, flights, 1, message(b"a"))
    found = client.result("getQueueLocations", text(flights))
    assert found == [{1: partition, 2: b"127.0.0.1", 3: port} for partition in range(3)]


def wrong_calls(flights: str) -> dict[str, tuple[str, tuple[Any, ...], str, str]]:
    """By situation: the method, its arguments, and the code and a part of the text of the error."""
    name, one = text(flights), struct(message(b"a"))
    many = [message(b"a")]
    near = f"did you mean {flights}"
    return {
        "unknown queue": ("putMessage", (text(flights.upper()), one), "unknown_queue", "there is no queue"),
        "near name": ("putMessages", (text(flights[1:]), structs(many)), "unknown_queue", near),
        "scan of no queue": ("openQueueScanner", (text("nowhere"), scan()), "unknown_queue", "nowhere"),
        "places of no queue": ("getQueueLocations", (text("nowhere"),), "unknown_queue", "nowhere"),
        "no queue named": ("putMessage", (None, one), "invalid_request", "no queue name"),
        "bad queue name": ("putMessage", (text("../x\r\n"), one), "invalid_request", "no queue name"),
        "partition 3 of 3": ("putMessageWithPid", (name, i32(3), one), "unknown_partition", "0 to 2"),
        "partition -1": ("putMessagesWithPid", (name, i32(-1), structs(many)), "unknown_partition", "0 to 2"),
        "no partition": ("putMessageWithPid", (name, None, one), "invalid_request", "no partition"),
        "scan of partition 3": ("openPartitionScanner", (name, i32(3), scan()), "unknown_partition", "0 to 2"),
        "one bad of two": ("openCombinedPartitionScanner", (name, partitions(0, 9)), "unknown_partition", "0 to 2"),
        "scan of none": ("openCombinedPartitionScanner", (name, partitions()), "invalid_request", "at least one"),
        "large body": ("putMessage", (name, struct(message(bytes(1001)))), "message_too_large", "1001"),
        "one large of two": ("putMessages", (name, structs([*many, message(bytes(1001))])), "message_too_large", ""),
        "large key": ("putMessage", (name, struct(message(b"", key=bytes(33 * KIB)))), "message_too_large", "key"),
        "large headers":
            ("putMessage", (name, struct(message(b"", headers={"h": bytes(65 * KIB)}))), "message_too_large", "header"),
        "header without a name":
            ("putMessage", (name, struct(message(b"", headers={"": b""}))), "invalid_request", "header"),
        "bad topic": ("putMessage", (name, struct(message(b"a", "JFK/EWR"))), "invalid_request", "topic"),
        "long topic": ("putMessage", (name, struct(message(b"a", "J" * 250))), "invalid_request", "topic"),
        "one bad topic": ("putMessages", (name, structs([*many, message(b"", "..")])), "invalid_request", "topic"),
        "bad topic of a scan": ("openQueueScanner", (name, scan(None, None, "a b")), "invalid_request", "topic"),
        "negative start": ("openQueueScanner", (name, scan(-1)), "invalid_request", "-1"),
        "no message": ("putMessage", (name, None), "invalid_request", "body"),
        "no body": ("putMessage", (name, struct({3: text("JFK")})), "invalid_request", "body"),
        "no messages": ("putMessages", (name, structs([])), "invalid_request", "not 0"),
        "a list of none": ("messageScannerGetList", (i32(1), i32(0)), "invalid_request", "not 0"),
        "a list of too many": ("messageScannerGetList", (i32(1), i32(10_001)), "invalid_request", "10001"),
        "scanner never opened": ("messageScannerGet", (i32(-7),), "unknown_scanner", "-7"),
        "no scanner named": ("messageScannerGet", (None,), "unknown_scanner", "not open"),
    }  # fmt: skip


def test_a_wrong_call_gets_a_typed_error_and_stores_nothing_and_the_connection_goes_on(
    client: Client, flights: str
) -> None:
    put(client, flights, 0, message(b"before"))
    for situation, (method, arguments, code, part) in wrong_calls(flights).items():
        with pytest.raises(DeclaredError) as caught:
            client.result(method, *arguments)
        assert (caught.value.code, caught.value.retryable) == (code, False), situation
        assert part in caught.value.message, situation
        assert "\n" not in caught.value.message, situation
    assert [one[6] for one in stored(client, flights)] == [b"before"]


# -- as a listener --------------------------------------------------------------------------------------------------


class Received:
    """The handler of a PlainListener; takes the answers it is told to give, then answers OK."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.answers: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()
        self.calls: list[tuple[float, list[dict[int, Any]]]] = []
        """All that came, with the time: also what was answered with a failure."""
        self.messages: list[dict[int, Any]] = []
        """What was answered with OK."""
        self.gate = threading.Event()
        self.gate.set()

    def answer(self, method: str, arguments: dict[int, Any]) -> Fields:
        if method == "hello":
            return {0: text(self.token)}
        assert method == "onMessages"
        self.calls.append((time.monotonic(), arguments[3]))
        assert self.gate.wait(SECONDS)
        outcome = OK if self.answers.empty() else self.answers.get()
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == OK:
            self.messages += arguments[3]
        return {0: i32(outcome)}

    def bodies(self, partition: int | None = None) -> list[bytes]:
        return [one[6] for one in self.messages if partition in (None, one[2])]


def create_subscription(znodes: KazooClient, queue: str, name: str, *topics: str) -> None:
    """Write the durable record, to begin at the oldest message of every partition."""
    record = read_json(znodes, f"/hoot/queues/{queue}")
    starts = {str(partition): 0 for partition in range(record["settings"]["partitions"])}
    subscription = {
        "name": name, "queue": queue, "generation": record["generation"], "created_ms": int(time.time() * 1000),
        "starts": starts, "all_partitions": True, "topics": list(topics),
    }  # fmt: skip
    znodes.create(f"/hoot/queues/{queue}/subscriptions/{name}", json.dumps(subscription).encode())


@contextmanager
def attached(znodes: KazooClient, queue: str, name: str) -> Iterator[Received]:
    """Serve a PlainListener and register it for as long as the block lasts."""
    received = Received(f"token {next(NUMBERS)}")
    with Server(received.answer) as server:
        path = f"/hoot/queues/{queue}/listeners/{name}"
        listener = {"address": "127.0.0.1", "port": server.port, "token": received.token, "protocol": "plain"}
        znodes.create(path, json.dumps(listener).encode(), ephemeral=True)
        try:
            yield received
        finally:
            received.gate.set()
            znodes.delete(path)


def checkpoint(znodes: KazooClient, queue: str, name: str, partition: int) -> int | None:
    path = f"/hoot/queues/{queue}/subscriptions/{name}/{partition:05d}"
    return read_json(znodes, path)["id"] if znodes.exists(path) else None


def acknowledged(znodes: KazooClient, queue: str, partition: int, last: int) -> None:
    eventually(
        lambda: checkpoint(znodes, queue, "plain", partition) == last, f"partition {partition}: checkpoint {last}"
    )


def has(received: Received, count: int) -> None:
    eventually(lambda: len(received.messages) >= count, f"{count} messages", SECONDS)


def test_a_plain_listener_gets_everything_in_order_and_the_checkpoint_follows(
    client: Client, znodes: KazooClient, flights: str
) -> None:
    put(client, flights, 0, message(b"before", "JFK", b"UA", {"h": b"\xff"}))
    create_subscription(znodes, flights, "plain")
    with attached(znodes, flights, "plain") as received:
        last = [put(client, flights, n % 3, message(b"%d" % n), message(b"%d+" % n))[-1] for n in range(30)]
        has(received, 61)
        first = next(one for one in received.messages if one[6] == b"before")
        assert first == {1: first[1], 2: 0, 3: b"JFK", 4: b"UA", 5: {b"h": b"\xff"}, 6: b"before"}
        for partition in (0, 1, 2):
            bodies = [body for n in range(partition, 30, 3) for body in (b"%d" % n, b"%d+" % n)]
            assert received.bodies(partition) == [b"before"] * (partition == 0) + bodies
            acknowledged(znodes, flights, partition, last[27 + partition])
    put(client, flights, 1, message(b"while away"))
    with attached(znodes, flights, "plain") as received:
        has(received, 1)
        assert received.bodies() == [b"while away"]


def test_only_the_topics_of_the_subscription_come(client: Client, znodes: KazooClient, flights: str) -> None:
    mixed = [message(b"%d" % n, "JFK" if n % 2 else "LGA") for n in range(10)]
    last = put(client, flights, 0, *mixed, message(b"last", "LGA"))[-1]
    create_subscription(znodes, flights, "plain", "JFK")
    with attached(znodes, flights, "plain") as received:
        has(received, 5)
        acknowledged(znodes, flights, 0, last)
        assert received.bodies() == [b"1", b"3", b"5", b"7", b"9"]


@pytest.mark.parametrize("failure", [FAILED, ValueError("the handler raised")], ids=["failed", "raised"])
def test_messages_that_were_not_handled_come_again_after_a_pause(
    client: Client, znodes: KazooClient, flights: str, failure: int | Exception
) -> None:
    """Answered with FAILED, or with the INTERNAL_ERROR into which generated code turns what a handler raises."""
    create_subscription(znodes, flights, "plain")
    with attached(znodes, flights, "plain") as received:
        handled = put(client, flights, 0, message(b"a"))[-1]
        has(received, 1)
        acknowledged(znodes, flights, 0, handled)
        received.answers.put(failure)
        received.answers.put(failure)
        last = put(client, flights, 0, message(b"b"), message(b"c"))[-1]
        eventually(lambda: len(received.calls) >= 3, "the messages come again", SECONDS)
        assert checkpoint(znodes, flights, "plain", 0) == handled, "the checkpoint passed what was not handled"
        has(received, 3)
        assert received.bodies() == [b"a", b"b", b"c"]
        times = [at for at, came in received.calls if [one[6] for one in came] == [b"b", b"c"]]
        assert len(times) == 3
        assert all(later - earlier >= RETRY_SECONDS * 0.9 for earlier, later in itertools.pairwise(times))
        acknowledged(znodes, flights, 0, last)


def test_headers_that_do_not_parse_are_left_out_and_the_messages_come(
    client: Client, znodes: KazooClient, port: int, flights: str
) -> None:
    """Hosts do not open batches on their way in, so that a careless publisher can store such."""
    with BlockingConnection("127.0.0.1", port) as publisher:
        publisher.call("publish", flights, 0, encode([(b"a", None, "", b"\x09nonsense"), (b"b", None, "", b"")], 0))
    create_subscription(znodes, flights, "plain")
    with attached(znodes, flights, "plain") as received:
        has(received, 2)
        assert [(one[5], one[6]) for one in received.messages] == [({}, b"a"), ({}, b"b")]
    assert [(one[5], one[6]) for one in stored(client, flights)] == [({}, b"a"), ({}, b"b")]


def test_a_batch_that_is_larger_than_a_frame_as_structs_comes_in_several_calls(
    znodes: KazooClient, port: int, flights: str
) -> None:
    """65,000 small messages of one long topic take 260 KB packed, and 19 MB as structs."""
    count, topic = 65_000, "T" * 249
    with BlockingConnection("127.0.0.1", port) as publisher:
        base = publisher.call("publish", flights, 0, encode([(b"", None, topic, b"")] * count, 0)).baseId
    create_subscription(znodes, flights, "plain")
    with attached(znodes, flights, "plain") as received:
        has(received, count)
        assert [one[1] for one in received.messages] == list(range(base, base + count))
        assert len(received.calls) > 1
