"""`hoot spark export` and `import`: messages into files and back."""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, Observation, SparkSession, functions as F  # noqa: N812 - as Spark's own texts do

from delivery.errors import InvalidRequest
from delivery.model import PARTITIONS_MAX
from delivery.spark.jobs.choosing import Chosen, pin
from delivery.spark.jobs.failing import told_plainly
from delivery.spark.jobs.files import BROKEN, COLUMNS, Files, Form, read_files, write_files
from delivery.spark.jobs.following import followed
from delivery.spark.jobs.running import Progress, silent
from delivery.spark.jobs.storing import TASKS, Partitions, check_rows, in_order, store
from delivery.spark.planning import engine

_NAME: Final = "_name"
_FILE: Final = "_file"
_BLOCK: Final = "_block"
_LINE: Final = "_line"


class Exported(msgspec.Struct, frozen=True):
    """What an export wrote, or would write."""

    queue: str
    folder: str
    format: Form
    messages: int
    """Without topics and filter, when nothing was written."""
    until: str
    """The id behind the last of them."""


class Imported(msgspec.Struct, frozen=True):
    """What an import stored, or would store."""

    queue: str
    path: str
    messages: int
    identity: str
    """The `writeId`: what was stored under it is not stored again."""


def export_queue(
    session: SparkSession, chosen: Chosen, files: Files, *, dry_run: bool = False, progress: Progress = silent
) -> Exported:
    """Write messages into a folder that must not be there yet; it may be any that Spark can write.

    Raises InvalidRequest (the folder is there, a text is none), UnknownQueue, JobFailed.
    """
    files.checked()
    with told_plainly(), engine(chosen.zookeeper) as hosts:
        pinned = pin(hosts, chosen)
        count = pinned.messages
        if not dry_run:
            counted = Observation()
            rows = pinned.read(session, COLUMNS).observe(counted, F.count(F.lit(1)).alias("messages"))
            with followed(session, progress, 1):
                write_files(rows, files)
            count = int(counted.get["messages"])
    return Exported(chosen.queue, files.path, files.form, count, str(pinned.end))


def import_files(
    session: SparkSession, files: Files, zookeeper: str, queue: str, *, identity: str = "", where: Partitions = "key",
    dry_run: bool = False, progress: Progress = silent,
) -> Imported:  # fmt: skip
    """Store the rows of files as messages of a queue, in the order of their ids, or of the files if they have none.

    Files with the same rows are the same import (unless `identity` says otherwise), and are stored once, however often
    it runs. Raises InvalidRequest for columns and lines that are no messages, UnknownQueue, JobFailed.
    """
    files.checked()
    with told_plainly(), engine(zookeeper) as hosts:
        record = hosts.queue(queue)
        rows = read_files(session, files)
        check_rows(rows.drop(BROKEN))
        with followed(session, progress, 4):
            seen = _looked_through(rows)
            found = identity or f"import {record.generation} {seen.messages} {seen.digest}"
            if not dry_run and seen.messages:
                store(_ordered(rows, seen), zookeeper, queue, found, where)
    return Imported(queue, files.path, seen.messages, found)


class _Seen(msgspec.Struct, frozen=True):
    messages: int
    partitions: int
    """0 when not every row says its partition and id."""
    digest: str
    """Of all rows, in whatever order."""


def _looked_through(rows: DataFrame) -> _Seen:
    """One pass over all. Raises InvalidRequest for what cannot be stored."""
    numbered = {"partition", "offset"} <= set(rows.columns)
    placed = F.col("partition").isNotNull() & F.col("offset").isNotNull() if numbered else F.lit(False)
    broken = F.col(BROKEN) if BROKEN in rows.columns else F.lit(None).cast("string")
    found = rows.agg(
        F.count(F.lit(1)).alias("messages"),
        F.count(broken).alias("broken"),
        F.first(broken, ignorenulls=True).alias("example"),
        F.count_if(F.col("value").isNull()).alias("empty"),
        F.count_if(placed).alias("placed"),
        (F.min("partition") if numbered else F.lit(0)).alias("least"),
        (F.max("partition") if numbered else F.lit(0)).alias("last"),
        F.sum(_hashed(rows).cast("decimal(38,0)")).alias("digest"),
    ).first()
    assert found is not None, "an aggregate has a row"
    if found.broken:
        raise InvalidRequest(f"{found.broken} of {found.messages} lines cannot be read: {found.example[:80]!r}")
    if found.empty:
        raise InvalidRequest(f"{found.empty} of {found.messages} rows have no value")
    for number in (found.least, found.last):
        if number is not None and not 0 <= number < PARTITIONS_MAX:
            raise InvalidRequest(f"partitions are 0 to {PARTITIONS_MAX - 1}, and a row names {number}")
    partitions = int(found.last) + 1 if found.messages and found.placed == found.messages else 0
    return _Seen(found.messages, partitions, str(found.digest))


def _hashed(rows: DataFrame) -> Column:
    """A number for each row. Hashing skips what is null, so that a row must also say what is."""
    columns = [F.col(name) for name in COLUMNS.split(",") if name in rows.columns]
    absent = [F.col(name).isNull() if name in rows.columns else F.lit(True) for name in COLUMNS.split(",")]
    if "headers" in rows.columns:
        absent.append(F.transform("headers", lambda one: one["value"].isNull()))
    return F.xxhash64(*columns, *absent)


def _ordered(rows: DataFrame, seen: _Seen) -> DataFrame:
    rows = rows.drop(BROKEN)
    if seen.partitions:
        return in_order(rows, seen.partitions)
    told = {_NAME: "file_name", _FILE: "file_path", _BLOCK: "file_block_start"}
    place = [F.col(f"_metadata.{field}").alias(name) for name, field in told.items()]
    lines = rows.select("*", *place, F.monotonically_increasing_id().alias(_LINE))
    # Which task stores a row is a part of what keeps it from being stored twice, and the folder may be another then.
    return lines.repartition(TASKS, _NAME).sortWithinPartitions(_NAME, _FILE, _BLOCK, _LINE)
