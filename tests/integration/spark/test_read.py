"""A queue read by a real Spark: the same rows as were published, and one clear error for a wrong option."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delivery import NewMessage, connect
from tests.integration.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


def test_every_message_is_a_row_with_its_id_key_topic_time_and_headers(
    running: Engine, spark: SparkSession, tmp_path: Path
) -> None:
    with connect(running.address) as client:
        queue = client.create_queue("rows", partitions=3)
        messages = [
            NewMessage(
                b"body-%d" % number, key=b"k%d" % (number % 7) if number % 2 else None, topic=f"t{number % 3}",
                headers={"n": b"%d" % number} if number % 5 == 0 else None,
            )
            for number in range(1000)
        ]  # fmt: skip
        stored = queue.put_many(messages)
    rows = spark.read.format("hoot").option("queue", "rows").option("zookeeper", running.address).load().collect()
    assert len(rows) == 1000
    expected = {(one.partition, int(one.id)): sent for one, sent in zip(stored, messages, strict=True)}
    for row in rows:
        sent = expected.pop((row.partition, row.offset))
        assert bytes(row.value) == sent.body
        assert row.topic == sent.topic
        assert (None if row.key is None else bytes(row.key)) == sent.key
        assert {header.key: bytes(header.value) for header in row.headers} == (sent.headers or {})
        # Spark hands times to Python without a zone, in the zone of this process.
        assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp((row.offset >> 15) / 1000, UTC)
    assert not expected


def test_topics_and_headers_are_filtered_and_an_empty_queue_gives_no_rows(running: Engine, spark: SparkSession) -> None:
    with connect(running.address) as client:
        queue = client.create_queue("some", partitions=2)
        reader = spark.read.format("hoot").option("queue", "some").option("zookeeper", running.address)
        assert reader.load().count() == 0
        queue.put_many([
            NewMessage(b"x", topic="a" if n % 4 else "b", headers={"n": b"%d" % (n % 10)} if n % 2 else None)
            for n in range(100)
        ])  # fmt: skip
    assert reader.load().count() == 100
    assert reader.option("filter", "n = '3'").load().count() == 10
    assert reader.option("filter", "NOT EXISTS n").option("topics", "b").load().count() == 25


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": "nosuch"}, "there is no queue 'nosuch'"),
        ({"queue": "bad", "zookeeper": "127.0.0.1:1"}, "no ZooKeeper answers at 127.0.0.1:1"),
        ({"queue": "bad", "startingofset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"queue": "bad", "subscribe": "bad"}, "exactly one of queue, subscribe"),
        ({"queue": "bad", "startingOffsets": '{"bad": {"0": 99}}'}, "is complete up to id 0, and an offset names 99"),
        ({"queue": "bad", "startingOffsets": '{"bad": {"7": 1}}'}, "names bad/7, which the read does not include"),
        ({"queue": "bad", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streams"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_clear_error(
    running: Engine, spark: SparkSession, options: dict[str, str], says: str
) -> None:
    with connect(running.address) as client:
        if "bad" not in client.queues():
            client.create_queue("bad")
    reader = spark.read.format("hoot").option("zookeeper", running.address).options(**options)
    with pytest.raises(Exception, match=says):
        reader.load().count()


def test_partitions_are_divided_into_tasks_and_give_every_row_once(running: Engine, spark: SparkSession) -> None:
    with connect(running.address) as client:
        queue = client.create_queue("divided", partitions=2)
        stored = queue.put_many([NewMessage(b"%d" % number, partition=number % 2) for number in range(5000)])
    reader = spark.read.format("hoot").option("queue", "divided").option("zookeeper", running.address)
    rows = reader.option("minPartitions", "7").option("columns", "partition, offset").load()
    assert rows.columns == ["partition", "offset"]
    assert rows.rdd.getNumPartitions() >= 7
    assert sorted((row.partition, row.offset) for row in rows.collect()) == sorted(
        (one.partition, int(one.id)) for one in stored
    )


def test_a_read_takes_what_its_edges_and_conditions_name(running: Engine, spark: SparkSession) -> None:
    with connect(running.address) as client:
        messages = [NewMessage(b"x", topic=f"t{n % 3}", partition=n % 2) for n in range(100)]
        client.create_queue("edges-a", partitions=2).put_many(messages)
        stored = client.create_queue("edges-b", partitions=2).put_many(messages)
    ids = [int(one.id) for one in stored if one.partition == 1]
    reader = spark.read.format("hoot").option("zookeeper", running.address)
    both = reader.option("subscribePattern", "edges-.*").load()
    assert {(row.queue, row["count"]) for row in both.groupBy("queue").count().collect()} == {
        ("edges-a", 100), ("edges-b", 100),
    }  # fmt: skip
    reader = spark.read.format("hoot").option("zookeeper", running.address)
    some = reader.option("assign", '{"edges-b": [1]}').option("endingOffsets", f'{{"edges-b": {{"1": {ids[30]}}}}}')
    some = some.option("startingOffsets", f'{{"edges-b": {{"1": {ids[10]}}}}}').option("pushFilters", "true")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    rows = some.load().where(f"offset >= {ids[20]} and topic = 't1'").collect()
    assert [row.offset for row in rows] == [one for n, one in enumerate(ids) if 20 <= n < 30 and (2 * n + 1) % 3 == 1]
