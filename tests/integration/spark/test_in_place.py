"""Compaction in place: a new generation with the newest message of each key, and all that belongs to the queue."""

from __future__ import annotations

import secrets
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from delivery import NewMessage, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import InvalidRequest, QueueExists, SubscriptionBusy, UnknownQueue
from delivery.metastore.catalog import Catalog
from delivery.model import Message
from delivery.spark.jobs.archive import archive
from delivery.spark.jobs.renewing import Renewal, compact_in_place
from subscriber import RetryPolicy, Subscriber
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, hosted
from tests.integration.spark.compacted import SECONDS, check, fill, goes_on, messages, newest, said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


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


def test_what_comes_while_the_copy_is_made_follows_as_it_is(running: Engine, spark: SparkSession) -> None:
    real = Renewal._chosen
    with connect(running.address) as client:
        fill(client, "growing")
        before = messages(client, "growing")

        def and_more(*args: Any, **given: Any) -> Any:
            done = real(*args, **given)
            for body, key in ((b"later", b"k2"), (b"", b"k5")):
                client.queue("growing").put(body, key=key)
            return done

        with mock.patch.object(Renewal, "_chosen", and_more):
            compact_in_place(spark, running.address, "growing")
        found = messages(client, "growing")
        more = [one for one in found if one.number > max(old.number for old in before)]
        assert [one.body for one in sorted(more, key=lambda one: one.number)] == [b"later", b""]
        assert said(found) == said(newest(before)) | said(more)
        before = found
        compact_in_place(spark, running.address, "growing")
        check(client, "growing", before)
        goes_on(client, running.address, "growing", b"later", b"")


def test_while_one_compacts_a_queue_another_one_is_refused_and_spoils_nothing(
    running: Engine, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = Renewal._chosen, list[str]()
    alone = partialmethod(Catalog.alone, seconds=0.1)
    with connect(running.address) as client:
        fill(client, "twice")
        before = messages(client, "twice")

        def and_another(*args: Any, **given: Any) -> Any:
            done = real(*args, **given)
            with pytest.raises(InvalidRequest) as error:
                compact_in_place(spark, running.address, "twice")
            refused.append(str(error.value))
            return done

        monkeypatch.setattr(Catalog, "alone", alone)
        with mock.patch.object(Renewal, "_chosen", and_another):
            compact_in_place(spark, running.address, "twice")
        check(client, "twice", before)
    assert "is at the compaction of queue 'twice': wait for its end" in refused[0]


def test_of_what_is_parked_the_newest_of_its_key_comes(running: Engine, spark: SparkSession) -> None:
    heard: list[bytes] = []

    def listen(message: Message) -> None:
        if message.body.startswith(b"bad"):
            raise ValueError(message.body)
        heard.append(message.body)

    with connect(running.address) as client:
        stored = client.create_queue("parked-then-compacted")
        stored.put_many([NewMessage(body, key=body[-1:]) for body in (b"bad1", b"fine2", b"later1")])
        retry = RetryPolicy(order="key", first_seconds=300.0)
        failing = Subscriber("mine", running.address)
        failing.subscribe("parked-then-compacted", start="earliest", retry=retry, listener=listen)
        with failing:
            eventually(
                lambda: [len(one.ids) for _, one in client.parked("parked-then-compacted", "mine")] == [2],
                "parked",
                SECONDS,
            )
        assert heard == [b"fine2"]
        compact_in_place(spark, running.address, "parked-then-compacted")
        assert [one.body for one in messages(client, "parked-then-compacted")] == [b"fine2", b"later1"]
        assert client.release("parked-then-compacted", "mine") == 1
        again = Subscriber("mine", running.address)
        again.subscribe("parked-then-compacted", listener=listen)
        with again:
            eventually(lambda: heard == [b"fine2", b"later1"], "the newest of the key comes", SECONDS)
            eventually(
                lambda: client.parked("parked-then-compacted", "mine") == [], "nothing is parked any more", SECONDS
            )


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


def test_the_archive_of_a_new_generation_begins_anew(running: Engine, spark: SparkSession, tmp_path: Path) -> None:
    with connect(running.address) as client:
        fill(client, "archived-then-compacted")
        before = messages(client, "archived-then-compacted")
        first = archive(spark, running.address, "archived-then-compacted", tmp_path)
        assert sum(one.messages for one in first) == len(before)
        compact_in_place(spark, running.address, "archived-then-compacted")
        check(client, "archived-then-compacted", before)
        again = archive(spark, running.address, "archived-then-compacted")
        assert sum(one.messages for one in again) == len(newest(before)), "nothing of the former files is taken up"
        check(client, "archived-then-compacted", before)


def test_what_cannot_be_compacted_in_place_is_refused_before_anything_is_done(
    running: Engine, spark: SparkSession
) -> None:  # fmt: skip
    def refused(queue: str, kind: type[Exception], says: str) -> None:
        with pytest.raises(kind, match=says):
            compact_in_place(spark, running.address, queue)

    with connect(running.address) as client:
        stored = client.create_queue("not-compacted")
        client.create_queue("not-compacted.transacting")
        with client.transaction() as transaction:
            transaction.publish("not-compacted.transacting", b"x")
        refused("not-compacted.transacting", InvalidRequest, "transactions")
        subscriber = Subscriber("mine", running.address)
        subscriber.subscribe("not-compacted", listener=print)
        with subscriber:
            refused("not-compacted", SubscriptionBusy, "'mine' of queue 'not-compacted' is attached")
        client.create_queue("not-compacted.compacting")
        refused("not-compacted", QueueExists, "none that a compaction")
        stored.put(b"still open")
        assert "not-compacted.transacting.compacting" not in client.queues()


@pytest.mark.hbase
@pytest.mark.parametrize("layout", ["rows", "batches"])
def test_a_queue_in_hbase_is_compacted_in_place_as_well(
    zookeeper: EmbeddedZooKeeper, spark: SparkSession, tmp_path: Path, hbase_gateways: str, layout: str
) -> None:
    in_hbase = ("--store", "hbase", "--hbase-thrift", hbase_gateways, "--set", f"hbase_prefix=p{secrets.token_hex(6)}")
    with hosted(zookeeper, tmp_path, *in_hbase) as running, connect(running.address) as client:
        fill(client, "table", layout=layout)
        before = messages(client, "table")
        for _ in range(2):
            compact_in_place(spark, running.address, "table")
            check(client, "table", before)
        goes_on(client, running.address, "table")
