"""Stock Apache Thrift as the listener of a subscription: the host pushes to it, struct by struct."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from delivery.batch import encode
from delivery.embedded import EmbeddedZooKeeper
from delivery.rpc.blocking import BlockingConnection
from tests.integration.apache import SECONDS, Client
from tests.integration.embedded import eventually
from tests.integration.plain import (
    FAILED,
    RETRY_SECONDS,
    Foreign,
    Received,
    attached,
    checkpoint,
    create_subscription,
    foreign,
    message,
    put,
    retry_soon,
    stored,
)

pytestmark = pytest.mark.integration


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


def acknowledged(site: Foreign, queue: str, partition: int, last: int) -> None:
    eventually(lambda: checkpoint(site, queue, "plain", partition) == last, f"partition {partition}: checkpoint {last}")


def has(received: Received, count: int) -> None:
    eventually(lambda: len(received.messages) >= count, f"{count} messages", SECONDS)


def test_a_plain_listener_gets_everything_in_order_and_the_checkpoint_follows(
    client: Client, site: Foreign, flights: str
) -> None:
    put(client, flights, 0, message(b"before", "JFK", b"UA", {"h": b"\xff"}))
    create_subscription(client, flights, "plain")
    with attached(client, flights, "plain") as received:
        last = [put(client, flights, n % 3, message(b"%d" % n), message(b"%d+" % n))[-1] for n in range(30)]
        has(received, 61)
        first = next(one for one in received.messages if one[6] == b"before")
        assert first == {1: first[1], 2: 0, 3: b"JFK", 4: b"UA", 5: {b"h": b"\xff"}, 6: b"before"}
        for partition in (0, 1, 2):
            bodies = [body for n in range(partition, 30, 3) for body in (b"%d" % n, b"%d+" % n)]
            assert received.bodies(partition) == [b"before"] * (partition == 0) + bodies
            acknowledged(site, flights, partition, last[27 + partition])
    put(client, flights, 1, message(b"while away"))
    with attached(client, flights, "plain") as received:
        has(received, 1)
        assert received.bodies() == [b"while away"]


def test_only_the_topics_of_the_subscription_come(client: Client, site: Foreign, flights: str) -> None:
    mixed = [message(b"%d" % n, "JFK" if n % 2 else "LGA") for n in range(10)]
    last = put(client, flights, 0, *mixed, message(b"last", "LGA"))[-1]
    create_subscription(client, flights, "plain", "JFK")
    with attached(client, flights, "plain") as received:
        has(received, 5)
        acknowledged(site, flights, 0, last)
        assert received.bodies() == [b"1", b"3", b"5", b"7", b"9"]


@pytest.mark.parametrize("failure", [FAILED, ValueError("the handler raised")], ids=["failed", "raised"])
def test_messages_that_were_not_handled_come_again_after_a_pause(
    client: Client, site: Foreign, flights: str, failure: int | Exception
) -> None:
    """Answered with FAILED, or with the INTERNAL_ERROR into which generated code turns what a handler raises."""
    create_subscription(client, flights, "plain")
    retry_soon(site, flights, "plain")
    with attached(client, flights, "plain") as received:
        handled = put(client, flights, 0, message(b"a"))[-1]
        has(received, 1)
        acknowledged(site, flights, 0, handled)
        received.answers.put(failure)
        received.answers.put(failure)
        last = put(client, flights, 0, message(b"b"), message(b"c"))[-1]
        eventually(lambda: len(received.calls) >= 3, "the messages come again", SECONDS)
        assert checkpoint(site, flights, "plain", 0) == handled, "the checkpoint passed what was not handled"
        has(received, 3)
        assert received.bodies() == [b"a", b"b", b"c"]
        times = [at for at, came in received.calls if [one[6] for one in came] == [b"b", b"c"]]
        assert len(times) == 3
        assert all(later - earlier >= RETRY_SECONDS * 0.9 for earlier, later in itertools.pairwise(times))
        acknowledged(site, flights, 0, last)


def test_headers_that_do_not_parse_are_left_out_and_the_messages_come(
    client: Client, site: Foreign, flights: str
) -> None:
    """Hosts do not open batches on their way in, so that a careless publisher can store such."""
    with BlockingConnection("127.0.0.1", site.port) as publisher:
        publisher.call(
            "publish", flights, 0, encode([(b"a", None, "", b"\x09nonsense"), (b"b", None, "", b"")], 0), None
        )
    create_subscription(client, flights, "plain")
    with attached(client, flights, "plain") as received:
        has(received, 2)
        assert [(one[5], one[6]) for one in received.messages] == [({}, b"a"), ({}, b"b")]
    assert [(one[5], one[6]) for one in stored(client, flights)] == [({}, b"a"), ({}, b"b")]


def test_a_batch_that_is_larger_than_a_frame_as_structs_comes_in_several_calls(
    client: Client, site: Foreign, flights: str
) -> None:
    """65,000 small messages of one long topic take 260 KB packed, and 19 MB as structs."""
    count, topic = 65_000, "T" * 249
    with BlockingConnection("127.0.0.1", site.port) as publisher:
        base = publisher.call("publish", flights, 0, encode([(b"", None, topic, b"")] * count, 0), None).baseId
    create_subscription(client, flights, "plain")
    with attached(client, flights, "plain") as received:
        has(received, count)
        assert [one[1] for one in received.messages] == list(range(base, base + count))
        assert len(received.calls) > 1
