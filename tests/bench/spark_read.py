"""How fast Spark reads a queue: rows of 100 bytes, all columns, from one region host, beside its own read of Parquet.

    python -m tests.bench.spark_read --rows 10000000 --partitions 4
    python -m tests.bench.spark_read --rows 0 --seconds 30

Starts an engine of one host in a temporary folder and a Spark with two cores, stores the rows in a queue and, as that
gives them, in Parquet files, and reads both to `noop`, each `--repeats` times in turn: a line for each read, with the
processor seconds that a million rows took, and by whom, which tell more on a busy machine; then the median of their
ratios. After that a stream reads what is published, a thousand messages a second, and a line tells how old rows were
when their micro-batch had been counted. Counts are checked, of both.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delivery import NewMessage, connect
from delivery.local import LocalEngine
from delivery.spark.session import local_session
from tests.bench.spark_spent import spent, told
from tests.bench.spark_write import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BODY = "cast(rpad(string(id), 100, 'x') as binary) as value"
PUBLISHED_AT_ONCE, PAUSE_SECONDS = 10, 0.01
# What a query writes down for each micro-batch forks a shell each time, unless it is told not to.
SETTINGS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass":
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
}  # fmt: skip


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--durability", default="fsync", help="memory holds 64 MiB of a partition and no more")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the stream")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hoot-spark-read-") as folder:
        session = local_session("read", Path(folder) / "spark", settings=SETTINGS)
        session.sparkContext.setLogLevel("OFF")  # a stream that is stopped tells of it at length
        try:
            with LocalEngine(Path(folder) / "engine") as engine:
                if given.rows:
                    with connect(engine.address) as client:
                        client.create_queue("rows", partitions=given.partitions, durability=given.durability)
                    _, ratios = rates(session, engine.address, Path(folder), given.rows, given.repeats)
                    print(f"reads of the queue are {statistics.median(ratios):.2f} times as fast as those of Parquet")
                if given.seconds:
                    ages(session, engine.address, Path(folder), given.partitions, given.seconds)
        finally:
            session.stop()


def rates(
    session: SparkSession, address: str, folder: Path, count: int, repeats: int
) -> tuple[list[float], list[float]]:
    """Read both, in turn: rows a second of the queue, and how many times as fast as Parquet that was."""
    write(session.range(count, numPartitions=2).selectExpr(BODY), "plain", address, "rows")
    queue = session.read.format("hoot").options(zookeeper=address, queue="rows").load()
    files = str(folder / "parquet")
    queue.write.parquet(files)
    parquet = session.read.parquet(files)
    seen = [rows.selectExpr("count(*) rows", "bit_xor(xxhash64(value)) sum").head() for rows in (queue, parquet)]
    assert seen[0] == seen[1], f"the rows are not the same: {seen}"
    assert seen[0] is not None
    assert seen[0].rows == count, f"{seen} of {count} rows are there"
    taken = [(read(queue, "hoot", count), read(parquet, "parquet", count)) for _ in range(repeats)]
    return [count / ours for ours, _ in taken], [theirs / ours for ours, theirs in taken]


def read(rows: DataFrame, way: str, count: int) -> float:
    """Read all; how many seconds it took."""
    before, begun = spent(), time.monotonic()
    rows.write.format("noop").mode("overwrite").save()
    taken = time.monotonic() - begun
    each = told(before, count / 1_000_000)
    print(f"{way}: {count} rows in {taken:.1f} s, {count / taken:,.0f} rows/s; a million took {each}", flush=True)
    return taken


def ages(session: SparkSession, address: str, folder: Path, partitions: int, seconds: float) -> list[float]:
    """Stream what is published; how old, in seconds, each row was when its micro-batch had been counted.

    Without those of the first quarter, which pays for Spark's beginnings.
    """
    found: list[list[float]] = []

    def look(batch: DataFrame, _: int) -> None:
        row = batch.selectExpr("collect_list(unix_millis(timestamp))", "count(*)").head()
        if row is not None and row[1]:
            now = time.time()
            found.append([now - at / 1000 for at in row[0]])

    with connect(address) as client:
        client.create_queue("live", partitions=partitions)
    rows = session.readStream.format("hoot").options(
        zookeeper=address, queue="live", startingOffsets="earliest").load()  # fmt: skip
    query = rows.writeStream.foreachBatch(look).option("checkpointLocation", str(folder / "state")).start()
    before, begun = spent(), time.monotonic()
    with publishing(address) as published:
        query.awaitTermination(int(seconds))
    query.processAllAvailable()
    query.stop()
    counted = sum(map(len, found))
    assert counted == sum(published), f"{counted} of {sum(published)} rows are streamed"
    settled = found[len(found) // 4 :]
    every = sorted(age for ages in settled for age in ages)
    print(f"stream: {counted} rows in {len(found)} micro-batches; when it was counted a row was"
          f" {statistics.median(every):.2f} s old, at most {every[-1]:.2f} s, the oldest of a micro-batch"
          f" {statistics.median(map(max, settled)):.2f} s; a second took {told(before, time.monotonic() - begun)}",
          flush=True)  # fmt: skip
    return every


@contextlib.contextmanager
def publishing(address: str) -> Iterator[list[int]]:
    """Publish some messages at a time until the context ends; how many it were each time."""
    ended, published = threading.Event(), list[int]()

    def run() -> None:
        with connect(address) as client:
            queue = client.queue("live")
            while not ended.wait(PAUSE_SECONDS):
                published.append(len(queue.put_many([NewMessage(bytes(100))] * PUBLISHED_AT_ONCE)))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield published
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()
