"""A client of Spark Connect in a process of its own, with a PySpark that starts no Java.

    python -m tests.integration.spark.connected sc://HOST:PORT

Takes lines of JSON, [name of a step, arguments], and answers each with one: [what it gives, the error, whether Hoot is
loaded here].
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

Row = list[Any]


def read(session: SparkSession, options: dict[str, str], where: str) -> list[Row]:
    """Partition, offset, topic, key, value and headers of what a batch reads."""
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    rows = session.read.format("hoot").options(**options).load().where(where)
    shown = rows.selectExpr("partition", "offset", "topic", "string(key)", "string(value)", "size(headers)")
    return [list(row) for row in shown.collect()]


def read_stream(session: SparkSession, options: dict[str, str], folder: str) -> list[Row]:
    """Partition and offset of all that has come to the folder when what there is now is read, too."""
    rows = session.readStream.format("hoot").options(**options).load().select("partition", "offset")
    to_its_end(rows, "parquet", folder, path=f"{folder}/out")
    return [list(row) for row in session.read.parquet(f"{folder}/out").collect()]


def write(session: SparkSession, count: int, options: dict[str, str]) -> None:
    """Store so many rows, in two tasks."""
    rows = session.range(0, count, numPartitions=2).selectExpr("concat('body-', id) value", "concat('k', id % 9) key")
    rows.write.format("hoot").mode("append").options(**options).save()


def write_stream(session: SparkSession, folder: str, options: dict[str, str]) -> None:
    """Store the lines of JSON of the folder's files, a file a micro-batch."""
    files = session.readStream.schema("value string, key string").option("maxFilesPerTrigger", "1")
    to_its_end(files.json(f"{folder}/in"), "hoot", folder, **options)


def job(session: SparkSession, zookeeper: str, queue: str, folder: str, name: str) -> list[str]:
    """What a job says, as a function of the session: code and text of its error."""
    from delivery.errors import HootError
    from delivery.spark.jobs.archive import archive
    from delivery.spark.jobs.choosing import Chosen
    from delivery.spark.jobs.exporting import export_queue
    from delivery.spark.jobs.files import Files

    try:
        if name == "archive":
            archive(session, zookeeper, queue, Path(folder))
        else:
            export_queue(session, Chosen(zookeeper=zookeeper, queue=queue), Files(folder))
    except HootError as error:
        return [error.code, error.message]
    return []


def to_its_end(rows: DataFrame, form: str, folder: str, **options: str) -> None:
    """Run a stream until what there is now is done."""
    writer = rows.writeStream.format(form).options(**options, checkpointLocation=f"{folder}/state")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


STEPS = {step.__name__: step for step in (read, read_stream, write, write_stream, job)}


def answered(session: SparkSession, line: str) -> Row:
    name, arguments = json.loads(line)
    found, error = None, ""
    try:
        found = STEPS[name](session, **arguments)
    except PySparkException as raised:
        error = str(raised)
    return [found, error, any(module.split(".")[0] in {"delivery", "pyspark_hoot"} for module in sys.modules)]


if __name__ == "__main__":
    connected = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    for given in sys.stdin:
        print(json.dumps(answered(connected, given)), flush=True)
