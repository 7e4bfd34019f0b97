"""A driver in a process of its own, to be killed: counts a stream of flights per hour and carrier.

    python -m tests.integration.spark.counter FOLDER ZOOKEEPER QUEUE MASTER

Goes on until there is a file FOLDER/end; then it reads what is left, and writes FOLDER/counts.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own texts write it

from delivery.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LATE = "3 days"
"""How long flights are waited for, by their own time."""
HOUR_SECONDS = 3600
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"
SETTINGS = {
    # Otherwise each entry of the checkpoint forks a shell.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.task.maxFailures": "8",
    "spark.driver.memory": "768m",
}  # fmt: skip


def counted(session: SparkSession, zookeeper: str, queue: str) -> DataFrame:
    """Per hour and carrier the number of flights by their scheduled departure, and the sum of their delays."""
    options = {"queue": queue, "zookeeper": zookeeper, "subscription": "count", "maxOffsetsPerTrigger": "700"}
    rows = session.readStream.format("hoot").options(startingOffsets="earliest", **options).load()
    flight = F.from_json(F.col("value").cast("string"), "carrier string, time_hour string, minute int, dep_delay int")
    events = rows.select(flight.alias("flight")).select("flight.*")
    departure = F.timestamp_seconds(F.unix_timestamp(F.to_timestamp("time_hour")) + 60 * F.col("minute"))
    timed = events.withColumn("at", departure).withWatermark("at", LATE)
    hours = timed.groupBy(F.window("at", f"{HOUR_SECONDS} seconds").alias("hour"), "carrier")
    return hours.agg(F.count("*").alias("events"), F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delays"))


def main(folder: Path, zookeeper: str, queue: str, master: str) -> None:
    """Run the stream to its end."""
    session = local_session("counter", folder / "spark", settings={**SETTINGS, "spark.master": master})
    out = str(folder / "out")
    rows = counted(session, zookeeper, queue).writeStream.format("parquet").option("path", out)
    writer = rows.option("checkpointLocation", str(folder / "state")).outputMode("append")
    query = writer.trigger(processingTime="200 milliseconds").start()
    print("started", flush=True)
    while not (folder / "end").exists():
        query.awaitTermination(1)  # raises what it failed with
    query.stop()
    writer.trigger(availableNow=True).start().awaitTermination()
    found = session.read.parquet(out).selectExpr("unix_seconds(hour.start)", "carrier", "events", "delays")
    (folder / "counts.json").write_text(json.dumps([list(row) for row in found.collect()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
