"""Rows that a real Spark writes: every row a message, and none of them twice when a job or a micro-batch runs again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delivery import connect
from delivery.local import LocalEngine
from delivery.model import Message, partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


def stored(running: LocalEngine, queue: str) -> list[Message]:
    """All that the queue holds."""
    with connect(running.address) as client:
        return list(client.queue(queue).scanner())


def write(rows: DataFrame, running: LocalEngine, **options: str) -> None:
    rows.write.format("hoot").mode("append").option("zookeeper", running.address).options(**options).save()


def stream(spark: SparkSession, running: LocalEngine, folder: Path, queue: str) -> None:
    """Write what there is in the files of the folder, a file a micro-batch."""
    rows = (
        spark.readStream.schema("value string, key string").option("maxFilesPerTrigger", "1").json(str(folder / "in"))
    )
    writer = rows.writeStream.format("hoot").option("zookeeper", running.address).option("queue", queue)
    query = writer.option("checkpointLocation", str(folder / "state")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None


def test_every_row_is_a_message_with_its_key_topic_headers_and_partition(
    running: LocalEngine, spark: SparkSession
) -> None:
    with connect(running.address) as client:
        client.create_queue("written", partitions=3)
    rows = spark.range(0, 1000, numPartitions=2).selectExpr(
        "concat('body-', id) as value", "if(id % 2 = 0, concat('k', id), null) as key",
        "if(id % 3 = 0, 'a', 'b') as topic", "if(id % 5 = 0, 2, null) as partition",
        "array(named_struct('key', 'n', 'value', cast(string(id) as binary))) as headers",
    )  # fmt: skip
    write(rows, running, queue="written")
    found = stored(running, "written")
    assert Counter(one.body for one in found) == Counter(b"body-%d" % number for number in range(1000))
    for one in found:
        number = int(one.body[5:])
        assert one.key == (b"k%d" % number if number % 2 == 0 else None)
        assert (one.topic, one.headers) == ("a" if number % 3 == 0 else "b", {"n": b"%d" % number})
        if number % 5 == 0:
            assert one.partition == 2
        elif one.key is not None:
            assert one.partition == partition_of(one.key, 3)


def test_a_copy_of_queues_goes_where_the_column_says_and_once_under_one_write_id(
    running: LocalEngine, spark: SparkSession
) -> None:
    with connect(running.address) as client:
        for name in ("copy-a", "copy-b"):
            client.create_queue(name, partitions=2)
    rows = spark.range(0, 3000, numPartitions=2).selectExpr(
        "string(id) as value", "if(id % 3 = 0, 'copy-a', 'copy-b') as queue"
    )
    for _ in range(2):
        write(rows, running, writeId="load")
    assert (len(stored(running, "copy-a")), len(stored(running, "copy-b"))) == (1000, 2000)
    read = spark.read.format("hoot").option("zookeeper", running.address).option("queue", "copy-a").load()
    write(read, running, queue="copy-b")
    assert len(stored(running, "copy-b")) == 3000


def test_a_stream_stores_each_file_once_though_its_last_micro_batches_run_again(
    running: LocalEngine, spark: SparkSession, tmp_path: Path
) -> None:
    with connect(running.address) as client:
        client.create_queue("streamed", partitions=2)
    (tmp_path / "in").mkdir()
    sent = []
    for number in range(3):
        names = [f"{number}-{row}" for row in range(500)]
        lines = [f'{{"value": "{name}", "key": "k{name[-1]}"}}' for name in names]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
        sent += names
        stream(spark, running, tmp_path, "streamed")
    # As after a crash between the last micro-batch's rows and its entry in the commit log.
    commits = tmp_path / "state" / "commits"
    for path in [*commits.glob("2"), *commits.glob(".2.*")]:
        path.unlink()
    stream(spark, running, tmp_path, "streamed")
    assert (commits / "2").exists()
    assert Counter(one.body.decode() for one in stored(running, "streamed")) == Counter(sent)


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        (["id as value"], {"queue": "refused"}, "column value is bigint"),
        (["string(id) as value"], {"queue": "nosuch"}, "nosuch"),
        (["string(id) as value"], {"queue": "refused", "writeid2": "x"}, "did you mean 'writeId'"),
        (["string(id) as value", "9 as partition"], {"queue": "refused"}, "has partitions 0 to 0, not 9"),
        (["repeat('x', 101) as value"], {"queue": "refused"}, "a value of 101 bytes; queue 'refused' takes up to 100"),
    ],
)
def test_what_cannot_be_written_is_one_clear_error_and_nothing_is_stored(
    running: LocalEngine, spark: SparkSession, columns: list[str], options: dict[str, str], says: str
) -> None:
    with connect(running.address) as client:
        if "refused" not in client.queues():
            client.create_queue("refused", body_bytes_max=100)
    with pytest.raises(Exception, match=says):
        write(spark.range(3).selectExpr(*columns), running, **options)
    assert stored(running, "refused") == []
