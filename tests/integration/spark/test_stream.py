"""A queue as a stream of a real Spark: every message once, over restarts, in batches as large as allowed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delivery import NewMessage, connect
from subscriber import Subscriber
from tests.integration.embedded import eventually
from tests.integration.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


def run(spark: SparkSession, running: Engine, folder: Path, queue: str, **options: str) -> list[int]:
    """Read what there is now, into the folder; how many rows each batch had."""
    reader = spark.readStream.format("hoot").option("queue", queue).option("zookeeper", running.address)
    writer = reader.options(**options).load().writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "state")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def read(spark: SparkSession, folder: Path) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in spark.read.parquet(str(folder / "out")).collect())


def test_a_stream_goes_on_where_it_was_and_gives_every_message_once(
    running: Engine, spark: SparkSession, tmp_path: Path
) -> None:
    with connect(running.address) as client:
        queue = client.create_queue("flow", partitions=3)
        first = queue.put_many([NewMessage(b"%d" % number) for number in range(900)])
        assert sum(run(spark, running, tmp_path, "flow", startingOffsets="earliest")) == 900
        assert sum(run(spark, running, tmp_path, "flow", startingOffsets="earliest")) == 0
        later = queue.put_many([NewMessage(b"%d" % number) for number in range(300)])
    assert sum(run(spark, running, tmp_path, "flow", startingOffsets="earliest")) == 300
    assert read(spark, tmp_path) == sorted((one.partition, int(one.id)) for one in [*first, *later])


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": "400"}, {"maxBytesPerTrigger": "40000"}], ids=str)
def test_batches_are_as_large_as_allowed(
    running: Engine, spark: SparkSession, tmp_path: Path, limit: dict[str, str]
) -> None:
    name = f"limited-{next(iter(limit)).lower()}"
    with connect(running.address) as client:
        queue = client.create_queue(name, partitions=2)
        stored = queue.put_many([NewMessage(bytes(100), partition=int(number > 300)) for number in range(1200)])
    batches = run(spark, running, tmp_path, name, startingOffsets="earliest", **limit)
    assert len(batches) >= 3
    assert max(batches) <= 400
    assert read(spark, tmp_path) == sorted((one.partition, int(one.id)) for one in stored)


def test_a_new_stream_begins_with_what_comes_after_its_start(
    running: Engine, spark: SparkSession, tmp_path: Path
) -> None:
    with connect(running.address) as client:
        queue = client.create_queue("late")
        queue.put(b"before")
        assert run(spark, running, tmp_path, "late") == []
        stored = queue.put(b"after")
    assert run(spark, running, tmp_path, "late") == [1]
    assert read(spark, tmp_path) == [(0, int(stored.id))]


def test_a_stream_that_names_a_subscription_moves_it_and_takes_turns_with_a_subscriber(
    running: Engine, spark: SparkSession, tmp_path: Path
) -> None:
    named, heard = {"subscription": "copy", "startingOffsets": "earliest"}, list[int]()
    with connect(running.address) as client:
        queue = client.create_queue("by-turns", partitions=2)
        queue.put_many([NewMessage(b"x")] * 300)
        assert sum(run(spark, running, tmp_path / "first", "by-turns", **named)) == 300
        assert client.subscription_info("by-turns", "copy").lag == 0, "its last batch is told, too"
        later = [int(one.id) for one in queue.put_many([NewMessage(b"y")] * 10)]
        subscriber = Subscriber("copy", zookeeper=running.address)
        subscriber.subscribe("by-turns").listener(lambda message: heard.append(message.number))
        with subscriber:
            eventually(lambda: len(heard) == 10, "the subscriber goes on where the stream was")
            eventually(lambda: client.subscription_info("by-turns", "copy").lag == 0, "its positions are saved")
        assert sorted(heard) == sorted(later)
        queue.put(b"z")
    assert run(spark, running, tmp_path / "second", "by-turns", **named) == [1]
