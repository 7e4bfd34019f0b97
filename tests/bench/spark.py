"""All figures of Spark in one run, each beside what is asked: for a machine with two cores that does nothing else.

    python -m tests.bench.spark                 # some eight minutes
    python -m tests.bench.spark --rows 1000000 --megabytes 100 --seconds 15 --repeats 1     # whether it works

One engine of one host and one Spark with two cores, as `tests.bench.spark_read`, `spark_write`, `spark_archive` and
`archive` measure them one by one; their lines come while it runs, with processor seconds by whom they were spent. The
table has medians of the repeats, and the least and the most.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from delivery import connect
from delivery.local import LocalEngine
from delivery.spark.session import local_session
from tests.bench import archive, spark_archive, spark_read, spark_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
SCANNED_MEGABYTES = 512
"""Of less, what every file has to tell of itself would be most of what is read."""


class Figure(msgspec.Struct, frozen=True):
    """One line of the table."""

    what: str
    values: Sequence[float]
    least: float | None = None
    """What is asked for: at least so much,"""
    most: float | None = None
    """or at most."""
    digits: int = 0

    def told(self) -> str:
        """As a line."""
        found = statistics.median(self.values)
        if self.least is not None:
            asked, holds = f"≥ {self.least:,.{self.digits}f}", found >= self.least
        else:
            assert self.most is not None
            asked, holds = f"≤ {self.most:,.{self.digits}f}", found <= self.most
        spread = f"{min(self.values):,.{self.digits}f} … {max(self.values):,.{self.digits}f}"
        return f"{self.what:<44} {asked:>12} {found:>12,.{self.digits}f}  {'yes' if holds else 'NO':<4} {spread}"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="to be read; 4 of 10 to be written")
    parser.add_argument("--megabytes", type=int, default=500, help="to be archived")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the stream")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hoot-spark-") as name, running(Path(name)) as (session, address):
        found = figures(session, address, Path(name), given)
    print(f"\n{'':<44} {'asked':>12} {'median':>12}  {'held':<4} least … most")
    print(*(one.told() for one in found), sep="\n")


@contextmanager
def running(folder: Path) -> Iterator[tuple[SparkSession, str]]:
    """A session and an engine's address."""
    session = local_session("figures", folder / "spark", settings=spark_read.SETTINGS)
    session.sparkContext.setLogLevel("OFF")  # a stream that is stopped tells of it at length
    try:
        with LocalEngine(folder / "engine") as engine:
            yield session, engine.address
    finally:
        session.stop()


def figures(session: SparkSession, address: str, folder: Path, given: argparse.Namespace) -> list[Figure]:
    """Measure one after the other."""
    repeats = range(given.repeats)
    with connect(address) as client:
        client.create_queue("rows", partitions=PARTITIONS)
    reads, ratios = spark_read.rates(session, address, folder, given.rows, given.repeats)
    with connect(address) as client:
        client.delete_queue("rows")
    writes = [spark_write.measure(session, address, "plain", given.rows * 4 // 10, PARTITIONS) for _ in repeats]
    kept = [spark_archive.measure(session, address, folder, given.megabytes, PARTITIONS) for _ in repeats]
    ages = spark_read.ages(session, address, folder, PARTITIONS, given.seconds)
    scanned = archive.measure(SCANNED_MEGABYTES, spark_archive.BODY_BYTES)
    return [
        Figure("read, rows/s (100 B, all columns, noop)", reads, least=1_500_000),
        Figure("read, times as fast as Parquet", ratios, least=0.5, digits=2),
        Figure("write, rows/s (100 B, durable)", writes, least=400_000),
        Figure("archive, MB/s", kept, least=100),
        Figure("scan of 1 % of an archive's time, % of bytes", [scanned[archive.SHARE]], most=3, digits=2),
        Figure("age of a row of a stream, s", ages, most=0.5, digits=2),
    ]


if __name__ == "__main__":
    main()
