"""A driver in a process of its own, to be killed: streams a folder's files into a queue, a file a micro-batch.

    python -m tests.integration.spark.writer FOLDER ZOOKEEPER QUEUE MASTER

Ends when all the files there are have been written. A task that fails is tried again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from delivery.spark.session import local_session
from tests.integration.spark.counter import SETTINGS


def main(folder: Path, zookeeper: str, queue: str, master: str) -> None:
    """Run the stream."""
    # Several tasks a micro-batch, each with several batches.
    settings = {**SETTINGS, "spark.master": master, "spark.sql.files.maxPartitionBytes": "2m"}
    session = local_session("writer", folder / "spark", settings=settings)
    rows = session.readStream.schema("value string").option("maxFilesPerTrigger", "1").json(str(folder / "in"))
    writer = rows.writeStream.format("hoot").option("zookeeper", zookeeper).option("queue", queue)
    query = writer.option("checkpointLocation", str(folder / "state")).trigger(availableNow=True).start()
    print("started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
