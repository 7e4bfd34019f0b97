"""`hoot spark compact`: the newest message of each key, as a Parquet table or in another queue.

A message with an empty body deletes its key, as publishers say it to Kafka with a null. Messages without a key have no
newer ones, and stay.
"""

from __future__ import annotations

import msgspec
from pyspark.sql import DataFrame, Observation, SparkSession, functions as F  # noqa: N812 - as Spark's own texts do

from delivery.errors import InvalidRequest
from delivery.spark.jobs.choosing import Chosen, Pinned, pin
from delivery.spark.jobs.failing import told_plainly
from delivery.spark.jobs.files import COLUMNS, Files, write_files
from delivery.spark.jobs.following import followed
from delivery.spark.jobs.running import Progress, silent
from delivery.spark.jobs.storing import in_order, settled, store
from delivery.spark.planning import Engine, engine


class Compacted(msgspec.Struct, frozen=True):
    """What a compaction wrote, or would write."""

    queue: str
    messages: int
    """That were read."""
    kept: int
    deleted: int
    """Keys whose newest message deletes them."""
    until: str


class Into(msgspec.Struct, frozen=True):
    """Where the newest messages go: exactly one of the two."""

    folder: str = ""
    queue: str = ""

    def checked(self, source: str) -> Into:
        """Itself. Raises InvalidRequest for no place or two, and for the source."""
        if bool(self.folder) == bool(self.queue):
            raise InvalidRequest("the newest messages go into a folder or into a queue: name one of them")
        if self.queue == source:
            raise InvalidRequest(f"{source!r} cannot be compacted into itself; name another queue")
        return self


def compact(
    session: SparkSession, chosen: Chosen, into: Into, *, keep_empty: bool = False, dry_run: bool = False,
    progress: Progress = silent,
) -> Compacted:  # fmt: skip
    """Write the newest message of each key; with `keep_empty` an empty body is a body like others.

    Raises InvalidRequest (no place or two, a folder that is there, the queue itself), UnknownQueue, JobFailed.
    """
    into.checked(chosen.queue)
    with told_plainly(), engine(chosen.zookeeper) as hosts:
        pinned = pin(hosts, chosen)
        counted = Observation()
        rows = _counted(newest(pinned.read(session, COLUMNS)), counted, keep_empty=keep_empty)
        with followed(session, progress, 3 if into.queue else 2):
            if dry_run:
                rows.count()
            else:
                _write(rows, hosts, pinned, into, keep_empty=keep_empty)
        found = counted.get
    return Compacted(chosen.queue, pinned.messages, found["kept"], found["deleted"], str(pinned.end))


def newest(messages: DataFrame) -> DataFrame:
    """Of each key the message with the highest id, and all without a key."""
    alone = F.when(F.col("key").isNull(), F.struct("partition", "offset"))
    latest = F.max_by(F.struct(*messages.columns), F.struct("offset", "partition"))
    return messages.groupBy("key", alone.alias("alone")).agg(latest.alias("one")).select("one.*")


def _counted(rows: DataFrame, counted: Observation, *, keep_empty: bool) -> DataFrame:
    """Without the keys that are deleted."""
    gone = F.lit(False) if keep_empty else F.col("key").isNotNull() & (F.length("value") == 0)
    told = rows.observe(counted, F.count_if(~gone).alias("kept"), F.count_if(gone).alias("deleted"))
    return told.where(~gone)


def _write(rows: DataFrame, hosts: Engine, pinned: Pinned, into: Into, *, keep_empty: bool) -> None:
    if into.folder:
        write_files(rows, Files(into.folder))
        return
    record = hosts.queue(into.queue)
    where = settled(None, pinned.partitions, record.settings)
    identity = f"compact {pinned.identity(record.generation, where, keep_empty)}"
    store(in_order(rows, pinned.partitions), pinned.chosen.zookeeper, into.queue, identity, where)
