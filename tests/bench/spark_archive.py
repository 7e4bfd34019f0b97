"""How fast `hoot spark archive` copies a queue to Parquet: messages of 1,000 bytes from one region host, on two cores.

    python -m tests.bench.spark_archive --megabytes 1000 --partitions 4

Starts an engine of one host in a temporary folder and a Spark with two cores, stores the messages, of whose bodies half
is noise, and archives them. One line tells the rate, and the processor seconds that a gigabyte took, by whom. That all
messages are recorded, and are in the files, is checked.
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
from delivery.spark.jobs.archive import archive
from delivery.spark.session import local_session
from tests.bench.spark_spent import spent, told
from tests.bench.spark_write import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BODY_BYTES = 1000
NOISE = " || ".join(f"unhex(sha2(string(id * 16 + {part}), 512))" for part in range(8))
BODY = f"cast({NOISE} || cast(repeat('x', {BODY_BYTES - 512}) as binary) as binary) as value"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hoot-spark-archive-") as folder:
        session = local_session("archive", Path(folder) / "spark")
        try:
            with LocalEngine(Path(folder) / "engine") as engine:
                measure(session, engine.address, Path(folder), given.megabytes, given.partitions)
        finally:
            session.stop()


def measure(session: SparkSession, address: str, folder: Path, megabytes: int, partitions: int) -> float:
    """Archive a queue of so many megabytes of bodies; megabytes a second."""
    count, queue = megabytes * 1_000_000 // BODY_BYTES, f"archived-{uuid4().hex[:8]}"
    with connect(address) as client:
        client.create_queue(queue, partitions=partitions)
        write(session.range(count, numPartitions=2).selectExpr(BODY), "plain", address, queue)
        before, begun = spent(), time.monotonic()
        done = archive(session, address, queue, folder / "archive")
        seconds, each = time.monotonic() - begun, told(before, megabytes / 1000)
        client.delete_queue(queue)
    recorded = sum(one.messages for one in done)
    files = session.read.parquet(f"{folder}/archive/queue={queue}")
    filed = files.selectExpr("count(distinct partition, offset)").head()
    assert filed is not None
    assert recorded == filed[0] == count, f"{recorded} and {filed[0]} of {count} messages are archived"
    rate = megabytes / seconds
    print(f"archive: {megabytes} MB in {seconds:.1f} s, {rate:.0f} MB/s; a gigabyte took {each}", flush=True)
    return rate


if __name__ == "__main__":
    main()
