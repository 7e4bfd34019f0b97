"""Compaction in place: a new generation with the newest message of each key, whatever is killed in between."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from delivery import Client, NewMessage, connect
from delivery.client.copying import QueueCopy
from delivery.client.moving import SubscriptionCopies
from delivery.errors import InvalidRequest, QueueExists, SubscriptionBusy, UnknownQueue
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.queues import QueueManager
from delivery.model import Message
from delivery.spark.jobs.renewing import Renewal, compact_in_place
from subscriber import Subscriber
from tests.integration.embedded import ROOT, eventually
from tests.integration.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS, KEYS, COUNT = 3, 7, 120
SECONDS = 120.0


class BrokeOff(Exception):
    """As if the process had been killed."""


def fill(client: Client, queue: str) -> None:
    """Every key several times; `k3` is deleted, and all have heard of that; `k4` is, too, and nobody has."""
    stored = client.create_queue(queue, partitions=PARTITIONS)
    client.create_subscription(queue, "mine", start="earliest")
    for at in range(0, COUNT, 24):
        stored.put_many([
            NewMessage(b"%d" % n, key=b"k%d" % (n % KEYS), topic=f"t{n % 2}", headers={"n": b"%d" % n})
            for n in range(at, at + 24)
        ])  # fmt: skip
    stored.put(b"alone", partition=1)
    stored.put(b"", key=b"k3")
    stored.put_many([NewMessage(b"end", partition=n) for n in range(PARTITIONS)])
    client.seek(queue, "mine", "latest")
    stored.put(b"fresh", key=b"k1")
    stored.put(b"", key=b"k4")


def messages(client: Client, queue: str) -> list[Message]:
    return list(client.queue(queue).scanner())


def said(found: list[Message]) -> set[tuple[int, int, bytes, bytes | None, str, bytes]]:
    return {(one.partition, one.number, one.body, one.key, one.topic, one.header_block) for one in found}


def newest(found: list[Message]) -> list[Message]:
    """What is to be left."""
    latest = {one.key: one for one in sorted(found, key=lambda one: one.number)}
    return [one for one in found if one.key is None or (latest[one.key] is one and one.key != b"k3")]


@contextmanager
def breaking(kind: Any, name: str, after: int = 0, *, done: bool = False) -> Iterator[None]:
    """Calls of a method break off, behind so many that do not; with `done` when they have done their work."""
    real, calls = getattr(kind, name), 0

    def call(*args: Any, **given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= after:
            return real(*args, **given)
        if done:
            real(*args, **given)
        raise BrokeOff(name)

    with mock.patch.object(kind, name, call):
        yield


MOMENTS: dict[str, Callable[[], Any]] = {
    "the copy is made": lambda: breaking(Renewal, "_chosen"),
    "what is kept is there": lambda: breaking(QueueCopy, "switch"),
    "the queue is closed": lambda: breaking(SubscriptionCopies, "bring"),
    "the subscriptions are there": lambda: breaking(SubscriptionCopies, "bring", done=True),
    "the copy is whole": lambda: breaking(Catalog, "replace_queue"),
    "what belonged to the queue is gone": lambda: breaking(Catalog, "_delete_belongings", done=True),
    "the queue is replaced": lambda: breaking(Catalog, "replace_queue", done=True),
    "the messages are back": lambda: breaking(SubscriptionCopies, "bring", 1),
    "all is back": lambda: breaking(SubscriptionCopies, "bring", 1, done=True),
    "the queue is open": lambda: breaking(QueueCopy, "switch", 1, done=True),
    "the copy is to go": lambda: breaking(QueueManager, "delete_queue"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_was_broken_off_is_gone_on_with_and_loses_nothing(
    running: Engine, spark: SparkSession, moment: str
) -> None:  # fmt: skip
    queue = f"states-{list(MOMENTS).index(moment)}"
    with connect(running.address) as client:
        fill(client, queue)
        before, generation = messages(client, queue), client.queue_record(queue).generation
        with MOMENTS[moment](), pytest.raises(BrokeOff):
            compact_in_place(spark, running.address, queue)
        everywhere = said([
            one for name in client.queues() if name in {queue, f"{queue}.compacting"} for one in messages(client, name)
        ])  # fmt: skip
        assert everywhere >= said(newest(before)), "at each moment all is somewhere"
        late = untouched(client, queue)
        if late:  # what the copy holds of k5 is not to come back
            client.queue(queue).put(b"", key=b"k5")
            before = messages(client, queue)
        compact_in_place(spark, running.address, queue)
        check(client, queue, before)
        assert client.queue_record(queue).generation != generation
        goes_on(client, running.address, queue, *[b""] * late)


def untouched(client: Client, queue: str) -> bool:
    record = client.queue_record(queue)
    return not (record.copy_of or record.settings.closed)


def check(client: Client, queue: str, before: list[Message]) -> None:
    assert said(messages(client, queue)) == said(newest(before))
    assert f"{queue}.compacting" not in client.queues()
    assert not client.queue_record(queue).settings.closed


def goes_on(client: Client, address: str, queue: str, *more: bytes) -> None:
    """Its subscription with what it has not heard, and the queue with what is published."""
    client.queue(queue).put(b"new", key=b"k1")
    heard: list[bytes] = []
    subscriber = Subscriber("mine", address)
    subscriber.subscribe(queue, listener=lambda one: heard.append(one.body))
    with subscriber:
        eventually(lambda: len(heard) >= 3 + len(more), "what it had not heard comes", SECONDS)
        eventually(lambda: client.subscription_info(queue, "mine").lag == 0, "and no more", SECONDS)
    assert sorted(heard) == sorted([b"", b"fresh", b"new", *more])


def test_again_and_again_it_holds_the_newest_and_a_dry_run_changes_nothing(
    running: Engine, spark: SparkSession
) -> None:  # fmt: skip
    with connect(running.address) as client:
        fill(client, "often")
        before = messages(client, "often")
        told = compact_in_place(spark, running.address, "often", dry_run=True)
        assert (told.messages, told.kept, told.deleted) == (len(before), len(newest(before)), 1)
        assert said(messages(client, "often")) == said(before)
        with connect(running.address) as other:
            old = other.queue("often")
            for _ in range(2):
                assert compact_in_place(spark, running.address, "often").kept == len(newest(before))
                check(client, "often", before)
            with pytest.raises(UnknownQueue, match="another one of this name"):
                old.put(b"by who has not heard of it")
        client.seek("often", "mine", "latest")
        assert compact_in_place(spark, running.address, "often", dry_run=True).deleted == 1, "k4 can go now"
        assert compact_in_place(spark, running.address, "often", dry_run=True, keep_empty=True).deleted == 0


def test_of_what_was_deleted_at_the_end_the_last_message_stays_alone(running: Engine, spark: SparkSession) -> None:
    with connect(running.address) as client:
        stored = client.create_queue("deleted")
        stored.put_many(
            [NewMessage(body, key=key) for key, body in [(b"a", b"1"), *([(b"b", b"2")] * 5000), (b"b", b"")]]
        )
        last = messages(client, "deleted")[-1]
        assert compact_in_place(spark, running.address, "deleted").deleted == 1
        assert [(one.key, one.body) for one in messages(client, "deleted")] == [(b"a", b"1"), (b"b", b"")]
        assert messages(client, "deleted")[-1].number == last.number, "ids go on where they were"
        stored = client.queue("deleted")
        stored.put_many([NewMessage(b"x", key=b"k%d" % (n // 2 if n % 2 else -n)) for n in range(12_000)])
        told = compact_in_place(spark, running.address, "deleted")
        assert told.kept == len(messages(client, "deleted"))


def test_what_cannot_be_compacted_in_place_is_refused_before_anything_is_done(
    running: Engine, spark: SparkSession
) -> None:  # fmt: skip
    def refused(queue: str, kind: type[Exception], says: str) -> None:
        with pytest.raises(kind, match=says):
            compact_in_place(spark, running.address, queue)

    with connect(running.address) as client:
        stored = client.create_queue("refused")
        client.create_queue("refused.transacting")
        with client.transaction() as transaction:
            transaction.publish("refused.transacting", b"x")
        refused("refused.transacting", InvalidRequest, "transactions")
        subscriber = Subscriber("mine", running.address)
        subscriber.subscribe("refused", listener=print)
        with subscriber:
            refused("refused", SubscriptionBusy, "'mine' of queue 'refused' is attached")
        client.create_queue("refused.compacting")
        refused("refused", QueueExists, "none that a compaction")
        stored.put(b"still open")
        assert "refused.transacting.compacting" not in client.queues()


def test_a_driver_that_is_killed_at_any_moment_loses_nothing(running: Engine, spark: SparkSession) -> None:
    queue, copy = "killed", "killed.compacting"
    command = ["-m", "delivery.cli", "spark", "compact", queue, "--in-place", "--yes", "--master", "local[1]"]
    given = {**os.environ, "HOOT_ZOOKEEPER": running.address, "PYTHONPATH": str(ROOT)}
    with connect(running.address) as client:
        fill(client, queue)
        before = messages(client, queue)
        moments: list[Callable[[], bool]] = [
            lambda: copy in client.queues(),
            lambda: client.queue_record(queue).settings.closed,
            lambda: bool(client.queue_record(queue).copy_of),
        ]
        for come in moments:
            child = subprocess.Popen([sys.executable, *command], env=given, stdin=subprocess.DEVNULL)
            try:
                eventually(lambda: come() or child.poll() is not None, "the moment comes", SECONDS)  # noqa: B023
            finally:
                child.kill()
                child.wait()
            everywhere = [one for name in (queue, copy) if name in client.queues() for one in messages(client, name)]
            assert said(everywhere) >= said(newest(before))
        compact_in_place(spark, running.address, queue)
        check(client, queue, before)
        goes_on(client, running.address, queue)
