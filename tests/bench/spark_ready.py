"""The limit of what a Python data source of Spark can give: one that hands over ready columns, again and again.

    python -m tests.bench.spark_ready --rows 10000000

Reads it, and the same rows from Parquet files, to `noop`, `--repeats` times in turn, with all columns of a read of a
queue. Nothing is received, opened or decoded: what is left is the way of Arrow's bytes from a Python worker to Spark's
Java, and the rows that Spark makes of them. A line for each read, then the median of their ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from delivery.batch import encode, open_batch
from delivery.spark.columns import COLUMNS, ddl, to_arrow
from delivery.spark.session import local_session
from tests.bench.spark_read import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

TASKS: Final = 2
AT_ONCE: Final = 8000
"""Rows of one Arrow batch, as many as a read of small messages makes at once."""


class Ready(DataSourceReader):
    """Gives the same rows so many times."""

    def __init__(self, rows: int) -> None:
        self._times = rows // TASKS // AT_ONCE

    def partitions(self) -> list[InputPartition]:
        """Two."""
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Those of one."""
        rows = [(b"%0100d" % number, None, "", b"") for number in range(AT_ONCE)]
        batch = open_batch(encode(rows, int(partition.value)))
        columns = to_arrow([batch], "rows", COLUMNS, -1, 1 << 62)
        for _ in range(self._times):
            yield columns


class ReadySource(DataSource):
    """Named `ready`; its option `rows` says how many."""

    @classmethod
    def name(cls) -> str:
        """See above."""
        return "ready"

    def schema(self) -> str:
        """That of a queue."""
        return ddl(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """One."""
        return Ready(int(self.options["rows"]))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hoot-spark-ready-") as folder:
        session = local_session("ready", Path(folder) / "spark")
        try:
            found = ratios(session, Path(folder), given.rows, given.repeats)
        finally:
            session.stop()
    print(f"reads of ready columns are {statistics.median(found):.2f} times as fast as those of Parquet")


def ratios(session: SparkSession, folder: Path, rows: int, repeats: int) -> list[float]:
    """Read both, in turn: how many times as fast as Parquet ready columns are."""
    cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]
        sys.modules[__name__]
    )  # Spark's workers do not find this file
    session.dataSource.register(ReadySource)
    count = rows // TASKS // AT_ONCE * AT_ONCE * TASKS
    ready = session.read.format("ready").option("rows", rows).load()
    files = str(folder / "ready")
    ready.write.mode("overwrite").parquet(files)
    parquet = session.read.parquet(files)
    seen = [each.count() for each in (ready, parquet)]
    assert seen == [count, count], f"{seen} of {count} rows are there"
    taken = [(read(ready, "ready", count), read(parquet, "parquet", count)) for _ in range(repeats)]
    return [theirs / ours for ours, theirs in taken]


if __name__ == "__main__":
    main()
