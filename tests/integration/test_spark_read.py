"""A queue read by a real Spark: the same rows as were published, and one clear error for a wrong option."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delivery import NewMessage, connect
from delivery.errors import InvalidRequest
from delivery.local import LocalEngine
from delivery.spark.source import read_options
from tests.integration.engine import engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    with engine(tmp_path_factory.mktemp("engine")) as started:
        yield started


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from delivery.spark.session import local_session

    session = local_session("hoot-tests", tmp_path_factory.mktemp("spark"))
    try:
        yield session
    finally:
        session.stop()


def test_every_message_is_a_row_with_its_id_key_topic_time_and_headers(
    running: LocalEngine, spark: SparkSession, tmp_path: Path
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


def test_topics_are_filtered_and_an_empty_queue_gives_no_rows(running: LocalEngine, spark: SparkSession) -> None:
    with connect(running.address) as client:
        queue = client.create_queue("some", partitions=2)
        reader = spark.read.format("hoot").option("queue", "some").option("zookeeper", running.address)
        assert reader.load().count() == 0
        queue.put_many([NewMessage(b"x", topic="a" if number % 4 else "b") for number in range(100)])
    assert reader.load().count() == 100
    assert reader.option("topics", "b").load().count() == 25


def test_an_unknown_queue_is_one_clear_error(running: LocalEngine, spark: SparkSession) -> None:
    reader = spark.read.format("hoot").option("queue", "nosuch").option("zookeeper", running.address)
    with pytest.raises(Exception, match="nosuch"):
        reader.load().count()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs the name of a queue"),
        ({"queue": "..", "zookeeper": "x:1"}, "no queue name"),
        ({"queue": "q", "zookeper": "x:1"}, "did you mean 'zookeeper'"),
        ({"queue": "q", "topics": "a,b/c"}, "no topic name"),
    ],
)
def test_wrong_options_say_what_is_wrong(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        read_options(options)
