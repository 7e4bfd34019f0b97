"""Rows that a job stores in a queue: in an order of their own, so that the same rows are the same write.

Spark promises no order behind a shuffle, nor which task gets which rows; what is stored once depends on both
(docs/spark.md). So rows go to tasks by what they are, and are sorted there.
"""

from __future__ import annotations

from typing import Final, Literal

from pyspark.sql import Column, DataFrame, functions as F  # noqa: N812 - as all of Spark's own texts write it

from delivery.errors import InvalidRequest
from delivery.model import QueueSettings
from delivery.spark.sinkoptions import check_columns

Partitions = Literal["keep", "key"]
"""Where messages go: to the partition of the same number, or where their keys belong, and without a key to any."""

ORIGIN: Final = "hoot-origin"
"""A header that says where a copy comes from: queue/partition/id."""
TASKS: Final = 8
"""For rows that have no partition to go by. A number that never changes, whatever the cluster."""
_NAMES: Final = ("value", "key", "topic", "headers", "partition", "queue", "offset", "timestamp", "timestampType")


def in_order(rows: DataFrame, partitions: int, *, paced: bool = False) -> DataFrame:
    """In the order of their ids, each partition (of so many) by one task, or all by one when `paced`."""
    if paced:
        return rows.repartition(1).sortWithinPartitions("offset", "partition")
    return rows.repartitionById(partitions, F.col("partition").cast("int")).sortWithinPartitions("partition", "offset")


def by_content(rows: DataFrame, *, paced: bool = False) -> DataFrame:
    """In an order that only their columns decide."""
    columns = rows.columns
    spread = rows.repartition(1) if paced else rows.repartition(TASKS, *columns)
    return spread.sortWithinPartitions(*columns)


def check_rows(rows: DataFrame) -> None:
    """Raise InvalidRequest unless the columns can be messages."""
    check_columns(rows.schema, queue_given=True)


def settled(asked: Partitions | None, source: int, target: QueueSettings) -> Partitions:
    """Where messages go; without a wish to the same partitions if there are as many."""
    if asked not in {None, "keep", "key"}:
        raise InvalidRequest(f"partitions must be keep or key, not {asked!r}")
    return asked or ("keep" if source == target.partitions else "key")


def with_origin(rows: DataFrame) -> DataFrame:
    """With a header that tells where each comes from."""
    place = F.concat_ws("/", "queue", "partition", F.concat_ws("-", *_parts_of_id()))
    header = F.array(F.struct(F.lit(ORIGIN).alias("key"), place.cast("binary").alias("value")))
    if "headers" not in rows.columns:
        return rows.withColumn("headers", header)
    kept = F.filter("headers", lambda one: one["key"] != ORIGIN)
    return rows.withColumn(
        "headers", F.concat(F.coalesce(kept, F.array().cast(rows.schema["headers"].dataType)), header)
    )


def store(rows: DataFrame, zookeeper: str, queue: str, write_id: str, where: Partitions, rate: float = 0.0) -> None:
    """Write the rows as they are ordered; under one id what is stored is stored once. `rate` is of each task."""
    given = {"zookeeper": zookeeper, "queue": queue, "writeId": write_id}
    if rate:
        given["rowsPerSecond"] = f"{rate:g}"
    columns = [name for name in rows.columns if name in _NAMES and not (name == "partition" and where == "key")]
    rows.select(*columns).write.format("hoot").mode("append").options(**given).save()


def _parts_of_id() -> tuple[Column, Column]:
    return F.shiftrightunsigned("offset", 15), F.col("offset").bitwiseAND(F.lit(32767))
