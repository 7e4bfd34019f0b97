"""What a program can ask for wrongly: names, settings, messages, places to read from.

Each gets an error with a code and a word on whether to try again, in one line. ZooKeeper and the queue stay as they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delivery.client import NewMessage
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import (
    InvalidRequest,
    MessageTooLarge,
    QueueExists,
    UnknownPartition,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.ids import ID_MAX, MessageId
from delivery.messaging.transactions import Snapshot, write_snapshot
from delivery.rpc.protocol import load_idl
from tests.hosting import batch
from tests.integration.asking import QUEUE, Site, asked, refused

pytestmark = pytest.mark.integration

IDL: Any = load_idl("delivery")
NOTHING_IN_PROGRESS = write_snapshot(Snapshot(transaction=0, read_pointer=0, write_pointer=0))
Call = Callable[[Any], object]
"""Something that is asked for, with a value that may be wrong."""

WRONG_NAMES: Sequence[Any] = (
    "", ".", "..", "%2e", "%2e%2e", "../hosts", "a/b", "/", "a\r\nb", "a\n", "a\0b", " a", "x" * 250, "x" * 10_000,
    "größe", "пункт", "a\u200bb", "\ud800",
)  # fmt: skip
WRONG_PARTITIONS: Sequence[Any] = (2, -1, 32_767, 2**31 - 1, -(2**31))


@pytest.fixture(scope="module")
def site(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with asked(zookeeper, tmp_path_factory.mktemp("bad-input")) as found:
        yield found


# -- queues ---------------------------------------------------------------------------------------------------------


def by_name(site: Site) -> dict[str, Call]:
    """What takes the name of a queue that must be there."""
    client, connection, message = site.client, site.connection, IDL.Message(body=b"x")
    return {
        "queue": client.queue,
        "queue_info": client.queue_info,
        "update_queue": lambda name: client.update_queue(name, ttl_seconds=60),
        "delete_queue": client.delete_queue,
        "subscriptions": client.subscriptions,
        "subscription_info": lambda name: client.subscription_info(name, "auditor"),
        "delete_subscription": lambda name: client.delete_subscription(name, "auditor"),
        "unsubscribe": lambda name: site.subscriber().unsubscribe(name),
        "publish": lambda name: connection.call("publish", name, 0, batch(b"x"), None),
        "read": lambda name: connection.call("read", IDL.ReadRequest(queue=name, partition=0, after=0)),
        "partitionInfo": lambda name: connection.call("partitionInfo", name, 0),
        "countMessages": lambda name: connection.call("countMessages", name, 0, 0, 0),
        "locateMessages": lambda name: connection.call("locateMessages", name, 0, 0, 0, [1]),
        "decidedUpTo": lambda name: connection.call("decidedUpTo", name, 0, 0, 0, NOTHING_IN_PROGRESS),
        "putMessage": lambda name: connection.call("putMessage", name, message),
        "putMessages": lambda name: connection.call("putMessages", name, [message]),
        "openQueueScanner": lambda name: connection.call("openQueueScanner", name, None),
        "getQueueLocations": lambda name: connection.call("getQueueLocations", name),
    }


REMOTE = (
    "publish", "read", "partitionInfo", "countMessages", "locateMessages", "decidedUpTo", "putMessage", "putMessages",
    "putMessageWithPid", "openQueueScanner", "openPartitionScanner", "getQueueLocations",
)  # fmt: skip
"""Of the calls in these tests, those that reach the host unchecked; what they are given must be of the right type."""


def test_what_is_no_name_is_refused_everywhere(site: Site) -> None:
    others: dict[str, Call] = {
        "create_queue": site.client.create_queue,
        "subscribe": lambda name: site.subscriber().subscribe(name),
        "Subscriber": site.subscriber,
        "subscription_info": lambda name: site.client.subscription_info(QUEUE, name),
        "delete_subscription": lambda name: site.client.delete_subscription(QUEUE, name),
    }
    with site.unchanged():
        for method, call in [*by_name(site).items(), *others.items()]:
            for name in WRONG_NAMES if method in REMOTE else (*WRONG_NAMES, None, 7, b"flights"):
                error = refused(InvalidRequest, "", call, name)
                assert (error.code, error.retryable) == ("invalid_request", False)


def test_a_queue_that_is_not_there_is_named_with_what_comes_near(site: Site) -> None:
    with site.unchanged():
        for call in by_name(site).values():
            error = refused(UnknownQueue, "did you mean flights?", call, "flihgts")
            assert (error.code, error.retryable) == ("unknown_queue", False)
            refused(UnknownQueue, "`hoot queue create zzz`", call, "zzz")


def test_a_queue_is_created_once_and_keeps_its_settings(site: Site) -> None:
    with site.unchanged():
        for changes in ({}, {"partitions": 2, "body_bytes_max": 1000}, {"partitions": 9}):
            error = refused(QueueExists, QUEUE, site.client.create_queue, QUEUE, **changes)
            assert (error.code, error.retryable) == ("queue_exists", False)
    assert site.client.queue(QUEUE).settings.partitions == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0}, {"partitions": -1}, {"partitions": 32_768}, {"partitions": 2**70}, {"partitions": "2"},
        {"partitions": 1.5}, {"partitions": True}, {"partitions": None}, {"durability": "never"}, {"durability": None},
        {"ttl_seconds": 0}, {"ttl_seconds": -1}, {"ttl_seconds": float("nan")}, {"ttl_seconds": float("inf")},
        {"ttl_seconds": "1d"}, {"retention_bytes": 5}, {"retention_bytes": 2**61}, {"body_bytes_max": 0},
        {"body_bytes_max": 9 << 20}, {"colour": "red"}, {"name": "other"},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(site: Site, wrong: dict[str, Any]) -> None:
    with site.unchanged():
        refused(InvalidRequest, "", site.client.create_queue, "other", None, **wrong)
        refused(InvalidRequest, "", site.client.update_queue, QUEUE, None, **wrong)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_queue_keeps_its_number_of_partitions(site: Site, partitions: int) -> None:
    with site.unchanged():
        refused(InvalidRequest, "keeps its 2 partitions", site.client.update_queue, QUEUE, partitions=partitions)


def test_a_subscription_that_is_not_there_is_refused(site: Site) -> None:
    with site.unchanged():
        for call, *arguments in (
            (site.client.subscription_info, QUEUE, "nobody"),
            (site.client.delete_subscription, QUEUE, "nobody"),
            (site.subscriber("nobody").unsubscribe, QUEUE),
        ):
            error = refused(UnknownSubscription, "nobody", call, *arguments)
            assert (error.code, error.retryable) == ("unknown_subscription", False)


# -- partitions -----------------------------------------------------------------------------------------------------


def test_a_partition_out_of_range_is_refused_everywhere(site: Site) -> None:
    queue, connection, message = site.queue, site.connection, IDL.Message(body=b"x")
    calls: dict[str, Call] = {
        "put": lambda partition: queue.put(b"x", partition=partition),
        "put_many": lambda partition: queue.put_many([b"x", NewMessage(b"x", partition=partition)]),
        "bounds": queue.bounds,
        "count": lambda partition: queue.count(partition, 0),
        "partition_scanner": queue.partition_scanner,
        "combined_scanner": lambda partition: queue.combined_scanner([0, partition]),
        "publish": lambda partition: connection.call("publish", QUEUE, partition, batch(b"x"), None),
        "read": lambda partition: connection.call("read", IDL.ReadRequest(queue=QUEUE, partition=partition)),
        "partitionInfo": lambda partition: connection.call("partitionInfo", QUEUE, partition),
        "countMessages": lambda partition: connection.call("countMessages", QUEUE, partition, 0, 0),
        "locateMessages": lambda partition: connection.call("locateMessages", QUEUE, partition, 0, 0, [1]),
        "decidedUpTo": lambda partition: connection.call("decidedUpTo", QUEUE, partition, 0, 0, NOTHING_IN_PROGRESS),
        "putMessageWithPid": lambda partition: connection.call("putMessageWithPid", QUEUE, partition, message),
        "openPartitionScanner": lambda partition: connection.call("openPartitionScanner", QUEUE, partition, None),
    }
    with site.unchanged():
        for method, call in calls.items():
            for partition in WRONG_PARTITIONS:
                error = refused(UnknownPartition, "0 to 1", call, partition)
                assert (error.code, error.retryable) == ("unknown_partition", False)
            refused(InvalidRequest if method in REMOTE else UnknownPartition, "", call, 2**40)
        with site.queue.publisher() as publisher:
            refused(UnknownPartition, "0 to 1", publisher.put, b"x", partition=2)
        refused(InvalidRequest, "at least one", site.queue.combined_scanner, [])


# -- messages -------------------------------------------------------------------------------------------------------

WRONG_MESSAGES: Sequence[tuple[dict[str, Any], type[InvalidRequest], str]] = (
    ({"body": bytes(1001)}, MessageTooLarge, "1001"),
    ({"key": bytes(32 * 1024 + 1)}, MessageTooLarge, "key"),
    ({"headers": {"h": bytes(64 * 1024)}}, MessageTooLarge, "headers"),
    ({"headers": {"": b""}}, InvalidRequest, "header"),
    ({"headers": {"h" * 250: b""}}, InvalidRequest, "header"),
    ({"headers": {"h": "text"}}, InvalidRequest, "header"),
    ({"headers": {7: b""}}, InvalidRequest, "header"),
    ({"headers": {"\ud800": b""}}, InvalidRequest, "header"),
    ({"topic": "JFK/EWR"}, InvalidRequest, "topic"),
    ({"topic": "J" * 250}, InvalidRequest, "topic"),
    ({"topic": ".."}, InvalidRequest, "topic"),
    ({"topic": "a\r\nb"}, InvalidRequest, "topic"),
    ({"topic": "zürich"}, InvalidRequest, "topic"),
)


def test_a_message_over_a_limit_is_refused_before_anything_is_sent(site: Site) -> None:
    with site.unchanged(), site.queue.publisher() as publisher:
        for wrong, kind, part in WRONG_MESSAGES:
            message = {"body": b"x"} | wrong
            for put in (site.queue.put, publisher.put):
                assert not refused(kind, part, put, **message).retryable
            for put_many in (site.queue.put_many, publisher.put_many):
                refused(kind, part, put_many, [b"fine", NewMessage(**message)])


@pytest.mark.parametrize("wrong", [{"body": "text"}, {"body": None}, {"body": 5}, {"key": "text"}], ids=str)
def test_what_is_not_bytes_is_a_mistake_of_the_program(site: Site, wrong: dict[str, Any]) -> None:
    with site.unchanged(), site.queue.publisher() as publisher:
        for put in (site.queue.put, publisher.put):
            with pytest.raises(TypeError, match="is bytes, not"):
                put(**({"body": b"x"} | wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"linger_ms": -1}, {"linger_ms": float("nan")}, {"batch_bytes": 0}, {"batch_bytes": 1 << 40},
        {"batch_messages": 0}, {"batch_messages": 65_537}, {"in_flight": 0}, {"in_flight": 17}, {"buffer_bytes": 0},
        {"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")},
    ],
    ids=str,
)  # fmt: skip
def test_settings_of_a_publisher_that_cannot_be_are_refused(site: Site, wrong: dict[str, Any]) -> None:
    refused(InvalidRequest, "", site.queue.publisher, **wrong)


# -- places to read from --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", ["", "now", "12x", "1-32768", "9" * 10_000, "a\nb", -1, ID_MAX + 1, 2**64, 1.5, True, None, b"1"],
    ids=lambda place: repr(place)[:20],
)  # fmt: skip
def test_a_scanner_starts_and_stops_at_places_only(site: Site, place: Any) -> None:
    scanners: tuple[Callable[..., object], ...] = (
        site.queue.scanner,
        lambda **scope: site.queue.partition_scanner(0, **scope),
        lambda **scope: site.queue.combined_scanner([1, 0], **scope),
    )
    for scanner in scanners:
        refused(InvalidRequest, "place", scanner, start=place)
        if place is not None:
            refused(InvalidRequest, "place", scanner, stop=place)


def test_a_scanner_does_not_start_in_the_future(site: Site) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for start in (tomorrow, MessageId.of(int(tomorrow.timestamp() * 1000)), ID_MAX):
        refused(InvalidRequest, "in the future", site.queue.scanner, start=start)


def test_a_scanner_takes_names_as_topics(site: Site) -> None:
    for topics in (["JFK", "a b"], [".."], ["x" * 250], [b"JFK"], [None]):
        refused(InvalidRequest, "topic", site.queue.scanner, topics=topics)


def test_what_a_host_is_asked_to_read_is_held_against_the_limits(site: Site) -> None:
    wrong: Sequence[dict[str, Any]] = (
        {"after": -1}, {"after": -(2**63)}, {"after": ID_MAX + 1}, {"upTo": -1}, {"upTo": 2**63 - 1},
        {"topics": ["a/b"]}, {"topics": ["x"] * 1001}, {"partition": None}, {"queue": None},
    )  # fmt: skip
    for fields in wrong:
        request = IDL.ReadRequest(**({"queue": QUEUE, "partition": 0} | fields))
        refused(InvalidRequest, "", site.connection.call, "read", request)
    refused(InvalidRequest, "", site.connection.call, "read", None)
    for after, until in ((-1, 0), (0, -1), (ID_MAX + 1, 0)):
        refused(InvalidRequest, "", site.connection.call, "countMessages", QUEUE, 0, after, until)
        refused(InvalidRequest, "", site.connection.call, "locateMessages", QUEUE, 0, after, until, [1])
        refused(InvalidRequest, "", site.connection.call, "decidedUpTo", QUEUE, 0, after, until, NOTHING_IN_PROGRESS)
    refused(InvalidRequest, "transaction", site.connection.call, "decidedUpTo", QUEUE, 0, 0, 0, b"nonsense")
    for counts in ([0], [2, 1], [1, 1], [*range(1, 1002)]):
        refused(InvalidRequest, "rising counts", site.connection.call, "locateMessages", QUEUE, 0, 0, 0, counts)
    odd = IDL.ReadRequest(queue=QUEUE, partition=0, after=0, upTo=0, topics=[], bytesMax=-5, waitMs=-5)
    assert site.connection.call("read", odd).position == site.last[0], "sizes and times are cut to what is possible"
