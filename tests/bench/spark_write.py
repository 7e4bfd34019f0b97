"""How fast Spark writes to a queue: rows of 100 bytes from two tasks on this machine to one region host, all durable.

    python -m tests.bench.spark_write --rows 4000000 --partitions 4

Starts an engine of one host in a temporary folder and a Spark with two cores, writes a tenth of the rows to warm up,
and prints a line for each of the ways: `plain` (values alone), `keys` (a key per row, which chooses its partition) and
`noop` (the same rows to nowhere: what Spark itself takes). A line says how many processor seconds of all processes a
million rows took, too, which tells more on a busy machine. Nothing is asserted but that all rows are stored.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from delivery import connect
from delivery.local import LocalEngine
from delivery.spark.session import local_session
from tests.bench.spark_spent import spent, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BODY = "cast(rpad(string(id), 100, 'x') as binary) as value"
WAYS = {"plain": [_BODY], "keys": [_BODY, "cast(string(id % 100000) as binary) as key"], "noop": [_BODY]}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--durability", default="fsync")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hoot-spark-write-") as folder:
        session = local_session("write", Path(folder) / "spark")
        try:
            with LocalEngine(Path(folder) / "engine") as engine:
                for way in WAYS:
                    measure(session, engine.address, way, given.rows, given.partitions, given.durability)
        finally:
            session.stop()


def measure(
    session: SparkSession, address: str, way: str, count: int, partitions: int, durability: str = "fsync"
) -> float:
    """One of the ways, after a smaller run of it; rows a second."""
    seconds, each = 0.0, ""
    for rows in (count // 10, count):
        queue = f"{way}-{uuid4().hex[:8]}"
        with connect(address) as client:
            client.create_queue(queue, partitions=partitions, durability=durability)
            before = spent()
            seconds = write(session.range(rows, numPartitions=2).selectExpr(*WAYS[way]), way, address, queue)
            each = told(before, rows / 1_000_000)
            stored = sum(client.queue(queue).bounds(number).messages for number in range(partitions))
            client.delete_queue(queue)
        assert way == "noop" or stored == rows, f"{stored} of {rows} rows are stored"
    print(f"{way}: {count} rows in {seconds:.1f} s, {count / seconds:,.0f} rows/s; a million took {each}", flush=True)
    return count / seconds


def write(rows: DataFrame, way: str, address: str, queue: str) -> float:
    """Write; how many seconds it took."""
    begun = time.monotonic()
    if way == "noop":
        rows.write.format("noop").mode("overwrite").save()
    else:
        rows.write.format("hoot").mode("append").option("zookeeper", address).option("queue", queue).save()
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
