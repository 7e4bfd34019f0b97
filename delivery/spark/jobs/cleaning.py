"""`hoot spark clean`: invalid transactions are ended for good, though their messages are stored for years.

Hosts forget an invalid transaction when nothing is stored any more that is as old (client/forgetting.py), so a queue
that keeps its messages keeps each of them remembered. Whether any message is of one takes a scan, which is what Spark
is for: of all partitions to which transactions publish, archives included, from when the oldest began to a day behind
the newest. Where a partition holds messages of one, its owner notes that they are rolled back; then the transaction is
aborted. Hosts are the only ones that write; whatever dies when, what is not aborted yet is invalid as before, and the
next job does it again.

The second thing that nobody does by himself: partitions that no host owns are not trimmed. They are asked for, which
makes a host take them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from delivery import wall
from delivery.batch import headers_in
from delivery.errors import UnknownQueue
from delivery.ids import first_id_at
from delivery.messaging.marks import pointers_in
from delivery.messaging.names import TRANSACTION_LIFE_MS
from delivery.metastore.live import LiveHosts
from delivery.metastore.records import QueueRecord
from delivery.spark.jobs.archiving import read_all
from delivery.spark.planning import PATIENCE_SECONDS, Engine, engine, for_each
from delivery.spark.ranges import Place, Span
from delivery.transactions.errors import UnknownTransaction
from delivery.transactions.forgetting import SKEW_MS, forgettable_before
from delivery.transactions.pointers import began_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delivery.spark.jobs.running import Progress

ROUND: Final = 4
"""So many stretches for each core are looked through before the progress is told."""

Spread = Callable[[Sequence[Span]], Sequence[Sequence[int]]]
"""Has stretches looked through somewhere; gives the transactions that were found in each."""


class Cleaned(msgspec.Struct, frozen=True):
    """What a job did, or would do."""

    invalid: int
    """Transactions that are invalid."""
    young: int
    """Of these: younger than 26 hours, so that what they published may still be on its way. They stay."""
    ended: int
    """The others: nobody has to remember them any more."""
    rolled_back: int
    """Partitions, counted for each transaction, in which messages of it were found."""
    scanned: int
    """Messages that were looked at."""
    taken: int
    """Partitions with a retention that no host owned, and none trimmed."""


def clean(
    session: SparkSession | None, zookeeper: str, *, dry_run: bool = False, progress: Progress = lambda *_: None
) -> Cleaned | None:
    """End invalid transactions, and have hosts trim what nobody owns; with `dry_run` tell what would be.

    Without a session only where nothing has to be scanned: else None. Raises CorruptRecord where a message cannot be
    read, JobFailed, and what the hosts and ZooKeeper do; then what was done stays.
    """
    with engine(zookeeper) as hosts:
        job = Job(hosts, wall.ms())
        if not job.spans:
            return job.run(lambda _: [], 1, progress, dry_run=dry_run)
        if session is None:
            return None
        from delivery.spark.jobs.running import cores, spread

        look = looking(zookeeper, frozenset(job.candidates))
        return job.run(
            lambda spans: spread(session, look, spans, list[int]), ROUND * cores(session), progress, dry_run=dry_run
        )


class Job:
    """One run."""

    def __init__(self, hosts: Engine, now_ms: int) -> None:
        self._hosts, self._manager = hosts, hosts.transactions
        self._queues = [hosts.queue(name) for name in hosts.catalog.queues()]
        invalid = [one.pointer for one in self._manager.all() if one.standing == "invalid"]
        self.candidates = [one for one in invalid if began_ms(one) < forgettable_before((), now_ms)]
        """The transactions that can be ended: nothing more is published in them."""
        self._young = len(invalid) - len(self.candidates)
        self.spans = self._planned() if self.candidates else []
        """What has to be looked through for them."""

    def run(self, spread: Spread, at_once: int, progress: Progress, *, dry_run: bool) -> Cleaned:
        """Do it, or find out what there is to do. Raises what `spread` and the hosts do."""
        unowned = [place for record in self._queues if _is_limited(record) for place in self._unowned(record)]
        found = sorted(self._found(spread, at_once, progress))
        if not dry_run:
            self._hosts.held(unowned)
            for_each(found, self._roll_back)  # all of it, before anything is aborted
            for_each(self.candidates, self._abort)
        scanned = sum(span.messages for span in self.spans)
        ended = len(self.candidates)
        return Cleaned(ended + self._young, self._young, ended, len(found), scanned, len(unowned))

    def _planned(self) -> list[Span]:
        """Where messages of the candidates can be, as far as clocks are apart."""
        after = first_id_at(began_ms(self.candidates[0]) - SKEW_MS) - 1
        until = first_id_at(began_ms(self.candidates[-1]) + TRANSACTION_LIFE_MS + 2 * SKEW_MS)
        held = self._hosts.held(place for one in self._queues if one.takes_transactions for place in _places(one))
        spans = [Span(*place, after, min(until, there.last_id)) for place, there in held.items()]
        return self._hosts.tasks(spans, 0)

    def _found(self, spread: Spread, at_once: int, progress: Progress) -> set[tuple[Place, int]]:
        """The partitions in which messages of the candidates are, with these."""
        found: set[tuple[Place, int]] = set()
        done, total = 0, sum(span.messages for span in self.spans)
        for at in range(0, len(self.spans), at_once):
            spans = self.spans[at : at + at_once]
            for span, pointers in zip(spans, spread(spans), strict=True):
                found |= {((span.queue, span.partition), pointer) for pointer in pointers}
            done += sum(span.messages for span in spans)
            progress(done, total)
        return found

    def _roll_back(self, found: tuple[Place, int]) -> None:
        place, pointer = found
        with contextlib.suppress(UnknownQueue):  # deleted since, and its messages with it
            self._hosts.call(*place, "rollBack", *place, pointer)

    def _abort(self, pointer: int) -> None:
        with contextlib.suppress(UnknownTransaction):  # hosts forget them, too
            self._manager.abort(pointer)

    def _unowned(self, record: QueueRecord) -> Iterator[Place]:
        catalog = self._hosts.catalog
        owners, live = catalog.readable_owners(record.name)[0], LiveHosts(catalog.readable_hosts()[0])
        return (place for place in _places(record) if live.owner(owners.get(place[1])) is None)


def look_through(hosts: Engine, span: Span, wanted: frozenset[int]) -> list[int]:
    """Which of some transactions have left anything in a stretch. Raises CorruptRecord, and what the owner does."""
    found: set[int] = set()
    after = span.after
    while after < span.until and len(found) < len(wanted):
        reply = read_all(hosts, span, after)
        for at, header in headers_in(reply.batches):
            found |= pointers_in(bytes(reply.batches[at : at + header.length])) & wanted
        if reply.position <= after:
            break
        after = reply.position
    return sorted(found)


def looking(zookeeper: str, wanted: frozenset[int]) -> Callable[[Span], list[int]]:
    """`look_through` as an executor does it."""

    def work(span: Span) -> list[int]:
        with engine(zookeeper, PATIENCE_SECONDS) as hosts:
            return look_through(hosts, span, wanted)

    return work


def _places(record: QueueRecord) -> Iterator[Place]:
    return ((record.name, partition) for partition in range(record.settings.partitions))


def _is_limited(record: QueueRecord) -> bool:
    return record.settings.ttl_seconds is not None or record.settings.retention_bytes is not None
