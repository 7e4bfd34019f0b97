"""Stock Apache Thrift as a client of a region host in a process of its own: the plain calls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from delivery.embedded import EmbeddedZooKeeper
from tests.integration.apache import Client, DeclaredError
from tests.integration.plain import (
    Foreign,
    drained,
    foreign,
    i32,
    message,
    partitions,
    put,
    scan,
    stored,
    struct,
    structs,
    text,
)

pytestmark = pytest.mark.integration

KIB = 1024


@pytest.fixture(scope="module")
def site(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    with foreign(zookeeper, tmp_path_factory.mktemp("plain")) as found:
        yield found


@pytest.fixture
def client(site: Foreign) -> Iterator[Client]:
    with Client(site.port) as found:
        yield found


@pytest.fixture
def flights(site: Foreign) -> str:
    return site.new_queue()


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


def test_a_scanner_lives_longer_than_the_connection_that_opened_it(client: Client, site: Foreign, flights: str) -> None:
    put(client, flights, 0, message(b"a"))
    with Client(site.port) as other:
        scanner = other.result("openQueueScanner", text(flights), scan())
    assert [one[6] for one in drained(client, scanner)] == [b"a"]


def test_the_locations_of_a_queue_name_a_host_that_answers_for_every_partition(
    client: Client, site: Foreign, flights: str
) -> None:
    put(client, flights, 1, message(b"a"))
    found = client.result("getQueueLocations", text(flights))
    assert found == [{1: partition, 2: b"127.0.0.1", 3: site.port} for partition in range(3)]


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
