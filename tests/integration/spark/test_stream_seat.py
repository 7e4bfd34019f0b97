"""A stream that names a subscription: its positions are the subscription's, and it and subscribers take turns.

The reader is called as Spark calls it, without a Spark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delivery import Client, NewMessage, connect
from delivery.errors import InvalidRequest, SubscriptionBusy, UnknownSubscription
from delivery.spark.options import read_options
from delivery.spark.stream import HootStreamReader
from delivery.spark.subscribing import PositionsDiffer
from subscriber import Message, Subscriber
from tests.integration.embedded import eventually
from tests.integration.engine import Engine
from tests.integration.verdicts import judged

pytestmark = [pytest.mark.integration, pytest.mark.spark]


class Query:
    """What Spark does with a reader, and keeps in a checkpoint: the offset up to which all batches are done."""

    def __init__(self, reader: HootStreamReader, at: dict[str, Any] | None) -> None:
        self.reader, self.at = reader, at

    def batch(self) -> list[bytes]:
        """One more micro-batch: the bodies, by partition and id."""
        with self._ending():
            start = self.at or self.reader.initialOffset()
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            tasks = self.reader.partitions(start, end)
        self.at = end
        batches = [batch for task in tasks for batch in self.reader.read(task)]
        return [body for batch in batches for body in batch.column("value").to_pylist()]

    def done(self) -> None:
        """What Spark asks when the last batch is entered as done."""
        assert self.at is not None
        with self._ending():
            self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """After an error the query ends."""
        try:
            yield
        except BaseException:
            self.reader.stop()
            raise


Start = Callable[..., Query]


@pytest.fixture(scope="module")
def client(running: Engine) -> Iterator[Client]:
    with connect(running.address) as connected:
        yield connected


@pytest.fixture
def start(running: Engine) -> Iterator[Start]:
    """Starts queries, from the beginning or from a checkpoint."""
    with contextlib.ExitStack() as stack:

        def begin(queue: str, at: dict[str, Any] | None = None, **options: str) -> Query:
            given = {"queue": queue, "zookeeper": running.address, "subscription": "copy", **options}
            reader = HootStreamReader(read_options(given, stream=True))
            stack.callback(reader.stop)
            return Query(reader, at)

        yield begin


def put(client: Client, queue: str, *bodies: bytes) -> None:
    client.queue(queue).put_many([NewMessage(body, topic=body[:1].decode(), partition=0) for body in bodies])


def position(client: Client, queue: str) -> int:
    return int(client.subscription_info(queue, "copy").partitions[0].position)


@contextlib.contextmanager
def subscribed(running: Engine, queue: str, *, force: bool = False) -> Iterator[list[bytes]]:
    """A subscriber, and what it hears."""
    heard: list[bytes] = []

    def hear(message: Message) -> None:
        heard.append(message.body)

    subscriber = Subscriber("copy", zookeeper=running.address, force=force)
    subscriber.subscribe(queue).listener(hear)
    with subscriber:
        yield heard


def test_a_stream_moves_its_subscription_after_each_batch_and_is_told_of_beside_live_ones(
    client: Client, start: Start
) -> None:
    client.create_queue("seen", partitions=1)
    put(client, "seen", b"a1", b"a2")
    query = start("seen", startingOffsets="earliest")
    assert query.batch() == [b"a1", b"a2"]
    found = judged(client, "seen", "copy", "pulled")
    assert found.lag == 2  # the batch is not done
    query.done()
    info = client.subscription_info("seen", "copy")
    assert (info.lag, info.partitions[0].verdict.level) == (0, "fine")
    assert info.listener is not None
    query.reader.stop()
    judged(client, "seen", "copy", "no_listener")
    put(client, "seen", b"a3")
    assert start("seen").batch() == [b"a3"], "without a checkpoint it begins where the subscription stands"


def test_a_second_reader_is_refused_and_force_takes_over_so_that_the_first_ends(client: Client, start: Start) -> None:
    client.create_queue("busy", partitions=1)
    first = start("busy", startingOffsets="earliest")
    put(client, "busy", b"a1")
    assert first.batch() == [b"a1"]
    with pytest.raises(SubscriptionBusy, match="take over with force"):
        start("busy").batch()
    second = start("busy", force="true")
    assert second.batch() == [b"a1"], "what the first had not finished"
    with pytest.raises(SubscriptionBusy, match="was taken over from this stream"):
        first.done()
    second.done()


def test_a_live_subscriber_takes_over_from_a_stream_and_the_stream_from_it(
    client: Client, running: Engine, start: Start
) -> None:
    client.create_queue("turns", partitions=1)
    query = start("turns", startingOffsets="earliest")
    put(client, "turns", b"a1")
    query.batch()
    query.done()
    put(client, "turns", b"a2")
    with pytest.raises(SubscriptionBusy), subscribed(running, "turns"):
        pass
    with subscribed(running, "turns", force=True) as heard:
        eventually(lambda: heard == [b"a2"], "the subscriber goes on where the stream was")
        with pytest.raises(SubscriptionBusy, match="taken over"):
            query.batch()
        eventually(lambda: client.subscription_info("turns", "copy").lag == 0, "its position is saved")
        put(client, "turns", b"a3")
        eventually(lambda: heard == [b"a2", b"a3"], "a stream that has ended takes nobody off")
        eventually(lambda: client.subscription_info("turns", "copy").lag == 0, "its position is saved")
        later = start("turns", force="true")
        later.reader.initialOffset()
        put(client, "turns", b"a4")
        assert later.batch()[-1:] == [b"a4"]
        later.done()
        assert client.subscription_info("turns", "copy").lag == 0
    later.reader.stop()
    with pytest.raises(PositionsDiffer, match="in partition 0 somebody has read up to"):
        start("turns", at=query.at).batch()


def test_a_checkpoint_goes_on_after_a_crash_before_its_batch_was_told(client: Client, start: Start) -> None:
    client.create_queue("crash", partitions=1)
    put(client, "crash", b"a1")
    query = start("crash", startingOffsets="earliest")
    query.batch()
    seat = query.reader._opened()[1]
    assert seat is not None
    seat._presence.close()  # as after kill -9: attached as long as its session lasts, and nobody answers
    put(client, "crash", b"a2")
    again = start("crash", at=query.at)
    assert again.batch() == [b"a2"]
    assert query.at is not None
    assert position(client, "crash") == query.at["crash"]["0"] - 1


def test_a_subscription_that_was_moved_or_deleted_ends_its_stream(client: Client, start: Start) -> None:
    client.create_queue("moved", partitions=1)
    put(client, "moved", b"a1")
    query = start("moved", startingOffsets="earliest")
    query.batch()
    client.seek("moved", "copy", "earliest", force=True)
    with pytest.raises(PositionsDiffer, match="moved by hand"):
        query.done()
    with pytest.raises(PositionsDiffer, match="older than the last move"):
        start("moved", at=query.at).batch()
    anew = start("moved")
    assert anew.batch() == [b"a1"]
    client.delete_subscription("moved", "copy")
    with pytest.raises(UnknownSubscription, match="was deleted"):
        anew.done()


def test_what_the_subscription_takes_is_chosen_by_the_hosts_and_a_pause_counts(client: Client, start: Start) -> None:
    client.create_queue("chosen", partitions=1)
    client.create_subscription("chosen", "copy", topics="a", filter="body.n > 1", start="earliest")
    client.queue("chosen").put_many([NewMessage(b'{"n": %d}' % n, topic="ab"[n % 2]) for n in range(6)])
    with pytest.raises(InvalidRequest, match="has other topics"):
        start("chosen", topics="b").batch()
    client.pause("chosen", "copy")
    query = start("chosen")
    assert query.batch() == []
    client.resume("chosen", "copy")
    assert query.batch() == [b'{"n": 2}', b'{"n": 4}']
    query.done()
    assert client.subscription_info("chosen", "copy").lag == 0


def test_a_limited_stream_reads_all_by_and_by_and_its_lag_goes_down(client: Client, start: Start) -> None:
    client.create_queue("limited", partitions=1)
    put(client, "limited", *(b"a%d" % number for number in range(5)))
    query = start("limited", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert [query.batch(), query.batch(), query.batch()] == [[b"a0", b"a1"], [b"a2", b"a3"], [b"a4"]]
    assert client.subscription_info("limited", "copy").lag == 1
    query.done()
    assert client.subscription_info("limited", "copy").lag == 0


def test_a_stream_that_is_to_begin_in_another_queue_makes_no_subscription(client: Client, start: Start) -> None:
    client.create_queue("mistyped", partitions=1)
    with pytest.raises(InvalidRequest, match="names mistiped/0, which the read does not include"):
        start("mistyped", startingOffsets='{"mistiped": {"0": 1}}').batch()
    assert client.subscriptions("mistyped") == []
