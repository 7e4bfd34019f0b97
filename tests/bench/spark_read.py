"""How fast Spark reads a queue: rows of 100 bytes, all columns, from one region host, beside its own read of Parquet.

    python -m tests.bench.spark_read --rows 10000000 --partitions 4
    python -m tests.bench.spark_read --rows 0 --seconds 30

Starts an engine of one host in a temporary folder and a Spark with two cores, stores the rows in a queue and, as that
gives them, in Parquet files, and reads both to `noop`, each `--repeats` times in turn: a line for each read, with the
processor seconds that a million rows took, and by whom, which tell more on a busy machine; then the ratio of the
medians. After that a stream reads what is published a thousand times a second, and a line tells how old the oldest row
of a micro-batch was when it had been counted. Counts are checked, of both.
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
                    rates(session, engine.address, Path(folder), given.rows, given.repeats)
                if given.seconds:
                    ages(session, engine.address, Path(folder), given.partitions, given.seconds)
        finally:
            session.stop()


def rates(session: SparkSession, address: str, folder: Path, count: int, repeats: int) -> None:
    """Read both, in turn."""
    write(session.range(count, numPartitions=2).selectExpr(BODY), "plain", address, "rows")
    queue = session.read.format("hoot").options(zookeeper=address, queue="rows").load()
    files = str(folder / "parquet")
    queue.write.parquet(files)
    ways = {"hoot": queue, "parquet": session.read.parquet(files)}
    found = {way: rows.selectExpr("count(*) rows", "bit_xor(xxhash64(value)) sum").head() for way, rows in ways.items()}
    assert found["hoot"] == found["parquet"], f"the rows are not the same: {found}"
    assert found["hoot"] is not None
    assert found["hoot"].rows == count, f"{found} of {count} rows are there"
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, rows in ways.items():
            seconds[way].append(read(rows, way, count))
    ratio = statistics.median(seconds["parquet"]) / statistics.median(seconds["hoot"])
    print(f"reads of the queue are {ratio:.2f} times as fast as those of Parquet", flush=True)


def read(rows: DataFrame, way: str, count: int) -> float:
    """Read all; how many seconds it took."""
    before, begun = spent(), time.monotonic()
    rows.write.format("noop").mode("overwrite").save()
    taken = time.monotonic() - begun
    each = told(before, count / 1_000_000)
    print(f"{way}: {count} rows in {taken:.1f} s, {count / taken:,.0f} rows/s; a million took {each}", flush=True)
    return taken


def ages(session: SparkSession, address: str, folder: Path, partitions: int, seconds: float) -> None:
    """Stream what is published, and look at the oldest row of each micro-batch."""
    found: list[float] = []
    counted = 0

    def look(batch: DataFrame, _: int) -> None:
        nonlocal counted
        row = batch.selectExpr("min(unix_millis(timestamp))", "count(*)").head()
        if row is not None and row[0] is not None:
            found.append(time.time() - row[0] / 1000)
            counted += row[1]

    with connect(address) as client:
        client.create_queue("live", partitions=partitions)
    rows = session.readStream.format("hoot").options(
        zookeeper=address, queue="live", startingOffsets="earliest").load()  # fmt: skip
    query = rows.writeStream.foreachBatch(look).option("checkpointLocation", str(folder / "state")).start()
    with publishing(address) as published:
        query.awaitTermination(int(seconds))
    query.processAllAvailable()
    query.stop()
    assert counted == sum(published), f"{counted} of {sum(published)} rows are streamed"
    settled = sorted(found[len(found) // 4 :])  # what comes first pays for Spark's beginnings
    print(f"stream: {counted} rows in {len(found)} micro-batches, the oldest row when it was counted:"
          f" {statistics.median(settled):.2f} s, the worst {settled[-1]:.2f} s")  # fmt: skip


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
