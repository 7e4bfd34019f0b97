"""`hoot spark replay`: messages of a queue to another one or to a subscription, as they are or as SQL makes them."""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql import DataFrame, Observation, SparkSession, functions as F  # noqa: N812 - as Spark's own texts do

from delivery.errors import InvalidRequest
from delivery.spark.jobs.choosing import Chosen, Pinned, pin
from delivery.spark.jobs.failing import told_plainly
from delivery.spark.jobs.following import followed
from delivery.spark.jobs.running import Progress, silent
from delivery.spark.jobs.storing import Partitions, by_content, check_rows, in_order, settled, store, with_origin
from delivery.spark.jobs.subscribed import Into, found, place_for, taken_by
from delivery.spark.planning import Engine, engine

VIEW: Final = "messages"
"""What a query reads from: the columns of a read."""
_ORDER: Final = frozenset({"partition", "offset"})


class Replayed(msgspec.Struct, frozen=True):
    """What a replay stored, or would store."""

    queue: str
    target: str
    """The queue in which they are."""
    messages: int
    until: str
    """The id behind the last of them: a replay that runs again up to there stores nothing twice."""
    partitions: Partitions


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of the messages."""

    sql: str = ""
    """A query on `messages`; empty for all as they are."""
    rate: float = 0.0
    """Messages a second; 0 for full speed."""
    partitions: Partitions | None = None
    unordered: bool = False
    """The query's rows have no partition and offset to be ordered by: they are stored in an order of their content."""
    origin: bool = False
    """Each with a header `hoot-origin`."""
    identity: str = ""
    """Instead of one that is made of all that decides which messages these are."""


def replay(
    session: SparkSession, chosen: Chosen, target: str, wishes: Wishes | None = None, *, dry_run: bool = False,
    progress: Progress = silent,
) -> Replayed:  # fmt: skip
    """Store messages of a queue in another one.

    Each partition's in their order, by one task; at a pace all in the order of their times, by one task. Raises
    InvalidRequest (a query that is none, or whose rows are no messages), UnknownQueue, JobFailed.
    """
    if target == chosen.queue:
        raise InvalidRequest(f"a replay of {target!r} into itself would never end; name another queue")
    with told_plainly(), engine(chosen.zookeeper) as hosts:
        record = hosts.queue(target)
        into = Into(target, record.settings, lambda: record.generation)
        return _replayed(session, hosts, chosen, into, wishes or Wishes(), progress, dry_run=dry_run)


def replay_to_subscription(
    session: SparkSession, chosen: Chosen, name: str, wishes: Wishes | None = None, *, dry_run: bool = False,
    progress: Progress = silent,
) -> Replayed:  # fmt: skip
    """Store messages of a queue for the listeners of one of its subscriptions alone, who hear them within a minute.

    Those that it takes (`subscribed.taken_by`), in a queue of its own, with a header `hoot-origin`, in order as
    `replay`. Raises UnknownSubscription, and as `replay`, InvalidRequest also for the replay of a subscription.
    """
    with told_plainly(), engine(chosen.zookeeper) as hosts:
        record = found(hosts, chosen.queue, name)
        settings = hosts.queue(chosen.queue).settings
        wished = msgspec.structs.replace(wishes or Wishes(), origin=True)
        return _replayed(
            session, hosts, taken_by(record, chosen), place_for(hosts, record, settings), wished, progress,
            dry_run=dry_run,
        )  # fmt: skip


def _replayed(
    session: SparkSession, hosts: Engine, chosen: Chosen, into: Into, wishes: Wishes, progress: Progress, *,
    dry_run: bool,
) -> Replayed:  # fmt: skip
    pinned = pin(hosts, chosen)
    where = settled(wishes.partitions, pinned.partitions, into.settings)
    rows = _queried(session, pinned, wishes)
    check_rows(rows)
    with followed(session, progress, 2):
        if dry_run:
            count = rows.count()
        else:
            wished = msgspec.structs.replace(wishes, partitions=where)
            identity = wishes.identity or f"replay {pinned.identity(into.opened(), wished)}"
            counted = Observation()
            told = rows.observe(counted, F.count(F.lit(1)).alias("messages"))
            store(_ordered(told, pinned, wishes), chosen.zookeeper, into.queue, identity, where, wishes.rate)
            count = int(counted.get["messages"])
    return Replayed(chosen.queue, into.queue, count, str(pinned.end), where)


def _queried(session: SparkSession, pinned: Pinned, wishes: Wishes) -> DataFrame:
    own = session.newSession()  # so that no view of the caller's is replaced
    messages = pinned.read(own)
    if wishes.origin:
        messages = with_origin(messages)
    if not wishes.sql:
        return messages
    messages.createOrReplaceTempView(VIEW)
    rows = own.sql(wishes.sql)
    if not (set(rows.columns) >= _ORDER or wishes.unordered):
        raise InvalidRequest(
            "the query gives no columns partition and offset, by which the messages are ordered: select them too, or"
            " say that they may come unordered"
        )
    return rows


def _ordered(rows: DataFrame, pinned: Pinned, wishes: Wishes) -> DataFrame:
    paced = wishes.rate > 0
    if wishes.unordered:
        return by_content(rows, paced=paced)
    return in_order(rows, pinned.partitions, paced=paced)
