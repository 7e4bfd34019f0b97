"""`hoot spark compact --in-place`: a new generation of a queue, which holds the newest message of each key.

What is kept is brought to a closed copy beside the queue, `<queue>.compacting`, with its ids, while the queue is
published to and delivered. Then the queue is closed, and what has come since follows, with the subscriptions and their
positions: the copy is whole, and opened, which says so (`client.copying`). Only then another queue is put in the place
of the queue, closed and empty, to which all of the copy is brought in the same way, and the copy is deleted.

What there is of the two tells how far an earlier run has come (`stage`), so whatever was killed is gone on with. At any
moment one of the two holds all: the queue until the copy was opened, the copy until the new queue was. One process does
it at a time (`metastore.works`): another one would take a copy that was opened meanwhile for one that is half made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, functions as F  # noqa: N812 - as Spark's own texts do

from delivery.client import Client, connect
from delivery.errors import InvalidRequest, QueueExists, SubscriptionBusy, UnknownQueue
from delivery.ids import ID_MAX, MessageId
from delivery.metastore.catalog import Catalog
from delivery.metastore.copies import compacting_queue
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.records import QueueRecord
from delivery.spark.jobs.bringing import Copying
from delivery.spark.jobs.choosing import Chosen, pin
from delivery.spark.jobs.compacting import Compacted
from delivery.spark.jobs.failing import told_plainly
from delivery.spark.jobs.following import followed
from delivery.spark.jobs.running import Progress, silent
from delivery.spark.planning import Engine, engine

Stage = Literal["begin", "replace", "fill", "end"]

_ANOTHER: Final = "another compaction of {!r} has begun meanwhile: this one has ended"


def compact_in_place(
    session: SparkSession, zookeeper: str, queue: str, *, keep_empty: bool = False, dry_run: bool = False,
    progress: Progress = silent,
) -> Compacted:  # fmt: skip
    """Make a new generation of a queue, with the newest message of each key, its subscriptions and their positions.

    An empty body deletes its key, unless `keep_empty`, when all subscriptions are past it. What an earlier run has
    begun is ended, and its messages told as kept. Raises SubscriptionBusy while a subscriber is attached;
    InvalidRequest while another one compacts it, and for a queue that may hold messages of transactions; QueueExists
    for another queue of the copy's name, UnknownQueue, JobFailed.
    """
    with told_plainly(), engine(zookeeper) as hosts, connect(zookeeper) as client:
        renewal = Renewal(hosts, client, zookeeper, queue)
        return renewal.run(session, progress, keep_empty=keep_empty, dry_run=dry_run)


def stage(queue: QueueRecord, copy: QueueRecord | None) -> Stage:
    """What is to be done next. Raises QueueExists when the copy is something else.

    Without a copy there is everything to do, or nothing left: it is the last that goes.
    """
    if copy is None or (copy.copy_of == queue.generation and copy.settings.closed):
        return "begin"
    if copy.copy_of == queue.generation:
        return "replace"
    if queue.copy_of == copy.generation:
        return "fill" if queue.settings.closed else "end"
    raise QueueExists(f"there is a queue {copy.name!r}, and it is none that a compaction of {queue.name!r} has left")


class Renewal:
    """One queue, and the copy beside it. For one thread."""

    def __init__(self, hosts: Engine, client: Client, zookeeper: str, queue: str) -> None:
        """Raises InvalidRequest for a name that leaves none for the copy."""
        self._hosts, self._client, self._zookeeper, self._queue = hosts, client, zookeeper, queue
        self._copy = compacting_queue(queue)

    def run(self, session: SparkSession, progress: Progress, *, keep_empty: bool, dry_run: bool) -> Compacted:
        """All stages that are left. Raises as `compact_in_place`."""
        if dry_run:
            return self._looked(session, progress, keep_empty=keep_empty)
        with self._hosts.catalog.alone("compaction", self._queue) as still_alone:
            queue = self._hosts.queue(self._queue)
            if stage(queue, self._found()) == "begin":
                self._check(queue)
                choose = partial(self._chosen, session, queue, progress, keep_empty=keep_empty)
                done = self._begin(queue, choose, still_alone)
            else:
                done = self._told()
            while (copy := self._found_by(still_alone)) is not None:
                self.go_on(self._hosts.queue(self._queue), copy)
        return done

    def _looked(self, session: SparkSession, progress: Progress, *, keep_empty: bool) -> Compacted:
        queue = self._hosts.queue(self._queue)
        if stage(queue, self._found()) != "begin":
            raise InvalidRequest(f"an earlier compaction of {self._queue!r} was broken off: run it again to end it")
        self._check(queue)
        return self._chosen(session, queue, progress, None, keep_empty=keep_empty)

    def go_on(self, queue: QueueRecord, copy: QueueRecord) -> None:
        """Do what is next when the copy is whole."""
        match stage(queue, copy):
            case "replace":
                settings = msgspec.structs.replace(queue.settings, closed=True)
                self._hosts.catalog.replace_queue(queue.name, queue.generation, settings, copy.generation)
            case "fill":
                self._client.copy_queue(copy.name, self._client, queue.name).switch(force=True)
            case "end":
                self._hosts.catalog.delete_queue(copy.name)
            case _:
                raise InvalidRequest(_ANOTHER.format(queue.name))

    def _found(self) -> QueueRecord | None:
        try:
            return self._hosts.queue(self._copy)
        except UnknownQueue:
            return None

    def _found_by(self, still_alone: Callable[[], None]) -> QueueRecord | None:
        """The copy, of which nobody else changes anything."""
        still_alone()
        return self._found()

    def _check(self, queue: QueueRecord) -> None:
        if queue.takes_transactions:
            raise InvalidRequest(
                f"queue {queue.name!r} may hold messages of transactions, which cannot be copied: compact it into a"
                " folder or into another queue"
            )
        catalog = self._hosts.catalog
        for name in catalog.subscriptions(queue.name):
            for one in catalog.members(queue.name, name):
                raise SubscriptionBusy(
                    f"subscription {name!r} of queue {queue.name!r} is attached, by the subscriber at {one.host_port}:"
                    " stop it, and start it again when the queue is compacted",
                    address=one.host_port,
                )

    def _begin(
        self, queue: QueueRecord, choose: Callable[[Copying], Compacted], still_alone: Callable[[], None]
    ) -> Compacted:  # fmt: skip
        """Make a whole copy; one that is half made may hold what is not the newest any more, and is made anew."""
        catalog, ended = self._hosts.catalog, InvalidRequest(_ANOTHER.format(queue.name))
        if (left := self._found_by(still_alone)) is not None:
            if stage(self._hosts.queue(self._queue), left) != "begin":
                raise ended
            catalog.delete_queue(self._copy)
        settings = msgspec.structs.replace(queue.settings, closed=True)
        made = catalog.create_queue(self._copy, settings, copy_of=queue.generation)
        done = choose(Copying(self._zookeeper, queue.name, made.name, made.generation))
        if (copy := self._found_by(still_alone)) is None or copy.generation != made.generation:
            raise ended
        self._client.copy_queue(queue.name, self._client, made.name).switch()
        return done

    def _chosen(
        self, session: SparkSession, queue: QueueRecord, progress: Progress, copying: Copying | None, *,
        keep_empty: bool,
    ) -> Compacted:  # fmt: skip
        """Have what is kept brought to the copy, or only counted."""
        pinned = pin(self._hosts, Chosen(zookeeper=self._zookeeper, queue=queue.name))
        floors = passed(self._hosts.catalog, queue.name, pinned.partitions)
        rows = choices(pinned.read(session, "key,value,partition,offset"), floors, keep_empty=keep_empty)
        found: Sequence[Sequence[int]]
        with followed(session, progress, 2 if copying is None else 3):
            if copying is None:
                ours, gone = ~F.col("end"), F.col("gone")
                found = rows.agg(F.count_if(ours & ~gone), F.count_if(ours & gone)).collect()
            else:
                ordered = rows.repartitionById(pinned.partitions, F.col("partition"))
                found = (
                    ordered.sortWithinPartitions("partition", "offset").rdd.mapPartitions(copying.__call__).collect()
                )
        kept, deleted = (sum(one[at] for one in found) for at in range(2))
        return Compacted(queue.name, pinned.messages, kept, deleted, str(pinned.end))

    def _told(self) -> Compacted:
        """Of what an earlier run has chosen."""
        copy = self._hosts.queue(self._copy)
        held = self._hosts.held((copy.name, number) for number in range(copy.settings.partitions)).values()
        messages, last = sum(one.messages for one in held), max(one.last_id for one in held)
        return Compacted(self._queue, messages, messages, 0, str(MessageId(last + 1)))


def passed(catalog: Catalog, queue: str, partitions: int) -> list[int]:
    """For each partition the id up to which all its subscriptions have handled everything; ID_MAX without any."""
    found = [ID_MAX] * partitions
    for name in catalog.subscriptions(queue):
        record = catalog.subscription(queue, name)
        states = {} if record is None else catalog.states(queue, name)
        for number, start in ({} if record is None else record.starts).items():
            found[number] = min(found[number], handled(states[number]) if number in states else start)
    return found


def handled(state: SubscriptionState) -> int:
    """The id up to which nothing is parked, and nothing waits with a member that is behind others."""
    alone = state.without_shares()
    return min([alone.position, *(number - 1 for one in alone.parked for number in one.ids)])


def choices(messages: DataFrame, floors: Sequence[int], *, keep_empty: bool) -> DataFrame:
    """What may stay, as rows of bringing.Choice: the newest of each key, all without a key, the last of each partition.

    With the last one the copy is known to have all up to there. `gone` is not a deletion that somebody has not heard of
    yet: those that all have passed (`passed`) go.
    """
    floor = F.get(F.lit(list(floors)), "partition")
    deletes = F.lit(False) if keep_empty else F.col("key").isNotNull() & (F.length("value") == 0)
    each = messages.select(
        "key", "partition", "offset", (deletes & (F.col("offset") <= floor)).alias("gone"),
        F.explode(F.array(F.lit(False), F.lit(True))).alias("end"),
    )  # fmt: skip
    own = F.when(F.col("key").isNull(), F.struct("partition", "offset"))
    by: list[Column | str | int] = [
        "end", F.when(~F.col("end"), F.col("key")).alias("of"), F.when(~F.col("end"), own).alias("alone"),
        F.when(F.col("end"), F.col("partition")).alias("at"),
    ]  # fmt: skip
    latest = F.max_by(F.struct("partition", "offset", "gone"), F.struct("offset", "partition"))
    return each.groupBy(*by).agg(latest.alias("one")).select("one.*", "end")
