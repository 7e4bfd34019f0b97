"""`hoot spark archive`: closed ranges of a queue become Parquet files, which its partitions' records name from then on.

Closed is all up to a partition's watermark, in whole batches: nothing can come at or below it any more. What is above
the last recorded range becomes files of a day and of at most about a million messages. Executors write and check them
under names that nobody looks for; the driver gives a round of them their names and records them by compare-and-set,
partition by partition, in the order of ids. So whatever dies when, what is recorded is whole, and the next job goes on
behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from delivery.errors import ArchiveRefused, InvalidRequest
from delivery.ids import first_id_at
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import QueueRecord
from delivery.model import ArchivedRange, QueueSettings, check_partition
from delivery.spark.jobs.archiving import archive_stretch
from delivery.spark.planning import PATIENCE_SECONDS, Engine, engine
from delivery.spark.ranges import Span
from delivery.storage.archive.folder import ArchiveFolder
from delivery.storage.archive.names import next_day
from delivery.storage.archive.writing import Stretch, Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delivery.spark.jobs.running import Progress

ROUND: Final = 4
"""So many files for each core are written before they are recorded: what a job that dies has done in vain."""

Spread = Callable[[Path, Sequence[Stretch]], Sequence[Written | None]]
"""Has files written somewhere, and gives them in the order of the stretches."""


class Archived(msgspec.Struct, frozen=True):
    """What a job did with one partition, or would do."""

    partition: int
    after: int
    """Where its archive ended."""
    until: int
    """Where it ends now."""
    files: int
    messages: int
    bytes: int
    """Of the files; 0 for a dry run."""


def archive(
    session: SparkSession | None, zookeeper: str, queue: str, folder: Path | None = None, *,
    partitions: Sequence[int] | None = None, until_ms: int | None = None, progress: Progress = lambda *_: None,
) -> list[Archived]:  # fmt: skip
    """Archive what is closed of a queue, up to a time; without a session tell what would be.

    `folder` is the queue's for good, and need not be named again. It is a path at which the driver, the executors and
    the region hosts have the same files. Raises ArchiveRefused, InvalidRequest, UnknownQueue, UnknownPartition, and
    what the hosts and ZooKeeper do; then what is recorded stays, and the next job goes on behind it.
    """
    with engine(zookeeper) as hosts:
        job = Job(hosts.catalog, hosts, hosts.queue(queue), folder, partitions, until_ms)
        if session is None:
            return job.planned()
        from delivery.spark.jobs.running import cores, spread

        def write(place: Path, stretches: Sequence[Stretch]) -> Sequence[Written | None]:
            return spread(session, _writing(zookeeper, place), stretches, Written | None)

        return job.run(write, ROUND * cores(session), progress)


class Job:
    """One run over one queue."""

    def __init__(
        self, catalog: Catalog, hosts: Engine, record: QueueRecord, folder: Path | None,
        partitions: Sequence[int] | None = None, until_ms: int | None = None,
    ) -> None:  # fmt: skip
        """Raises InvalidRequest, UnknownPartition."""
        self._catalog, self._hosts, self._record = catalog, hosts, record
        count = record.settings.partitions
        self._partitions = [
            check_partition(number, count, record.name) for number in sorted(set(partitions or range(count)))
        ]
        self._end = None if until_ms is None else first_id_at(until_ms) - 1
        self.folder = _folder(record, folder)
        self._files = ArchiveFolder(self.folder, record.name, record.generation)
        self._recorded: dict[int, tuple[ArchivedRange, ...]] = {}

    def planned(self) -> list[Archived]:
        """What there is to do."""
        self._read()
        filled = [one for one in self._plan() if one.messages]
        return [_summed(number, after, [], spans) for number, after, spans in self._by_partition(filled)]

    def run(self, spread: Spread, at_once: int, progress: Progress) -> list[Archived]:
        """Do it. Raises ArchiveRefused and what `spread` does."""
        with self._files.taken():
            self._read()
            before = {number: len(ranges) for number, ranges in self._recorded.items()}
            self._take_up()
            stretches, done = self._plan(), 0
            total = sum(one.messages for one in stretches)
            if stretches and self._record.settings.archive is None:
                self._claim_folder()
            for at in range(0, len(stretches), at_once):
                batch = stretches[at : at + at_once]
                self._record_all([one for one in spread(self.folder, batch) if one is not None])
                done += sum(one.messages for one in batch)
                progress(done, total)
        return [self._told(number, count) for number, count in before.items()]

    def _read(self) -> None:
        self._recorded = {number: self._catalog.archived(self._record.name, number) for number in self._partitions}

    def _take_up(self) -> None:
        """Record what a killed job has named."""
        for partition, files in self._files.unrecorded(self._recorded).items():
            if files:
                self._claim_folder()
                self._grow(partition, files)

    def _plan(self) -> list[Stretch]:
        """What is to become a file, by partition and id."""
        name = self._record.name
        held = self._hosts.held([(name, number) for number in self._partitions])
        days = []
        for number in self._partitions:
            there = held[name, number]
            end = there.last_id if self._end is None else min(self._end, there.last_id)
            # Of a partition that retention has emptied all below its end is gone: no day of it is to be looked at.
            days += _days(Span(name, number, self._until(number), end), there.first_id or there.last_id)
        # Days without messages as well: what the engine keeps for transactions counts for none, and is archived, too.
        spans = self._hosts.tasks(days, 0, empty=True)
        return [
            Stretch(name, self._record.generation, one.partition, one.after, one.until, one.messages) for one in spans
        ]

    def _claim_folder(self) -> None:
        """The hosts must know where to look before anything is dropped that is there."""
        self._record = self._catalog.update_queue(self._record.name, self._claimed)
        _folder(self._record, self.folder)

    def _claimed(self, settings: QueueSettings) -> QueueSettings:
        return settings if settings.archive else msgspec.structs.replace(settings, archive=str(self.folder))

    def _record_all(self, written: Sequence[Written]) -> None:
        for partition, group in groupby(written, key=lambda one: one.partition):
            files = list(group)
            self._files.bring_in(partition, [(one.temporary, one.file) for one in files])
            self._grow(partition, [one.file for one in files])

    def _grow(self, partition: int, files: Sequence[ArchivedRange]) -> None:
        present, record = self._recorded[partition], self._record
        self._catalog.record_archived(record.name, record.generation, partition, present, files)
        self._recorded[partition] = (*present, *files)

    def _until(self, partition: int) -> int:
        recorded = self._recorded[partition]
        return recorded[-1].until if recorded else 0

    def _by_partition(self, stretches: Sequence[Stretch]) -> list[tuple[int, int, list[Stretch]]]:
        return [
            (number, self._until(number), [one for one in stretches if one.partition == number])
            for number in self._partitions
        ]

    def _told(self, partition: int, before: int) -> Archived:
        recorded = self._recorded[partition]
        after = recorded[before - 1].until if before else 0
        return _summed(partition, after, recorded[before:], [])


def _folder(record: QueueRecord, asked: Path | None) -> Path:
    """The folder of a queue's archive. Raises InvalidRequest."""
    present = record.settings.archive
    if asked is None and present is None:
        raise InvalidRequest(f"queue {record.name!r} has no archive yet: name a folder with --to")
    folder = Path(present or "") if asked is None else asked.absolute()
    if present is not None and Path(present) != folder:
        raise InvalidRequest(
            f"queue {record.name!r} has its archive in {present}, and not in {folder}: leave --to out; to move an"
            " archive, move its files, and put a link to them where they were"
        )
    if folder.exists() and not folder.is_dir():
        raise ArchiveRefused(f"{folder} is no folder")
    return folder


def _days(span: Span, first_id: int) -> list[Span]:
    """The span, in which nothing lies below `first_id`, cut where days begin."""
    found, after = [], span.after
    while after < span.until:
        end = min(next_day(max(after + 1, first_id)) - 1, span.until)
        found.append(msgspec.structs.replace(span, after=after, until=end))
        after = end
    return found


def _summed(partition: int, after: int, files: Sequence[ArchivedRange], stretches: Sequence[Stretch]) -> Archived:
    parts: Sequence[Any] = [*files, *stretches]
    until = parts[-1].until if parts else after
    messages = sum(one.messages for one in parts)
    return Archived(partition, after, until, len(parts), messages, sum(one.bytes for one in files))


def _writing(zookeeper: str, folder: Path) -> Callable[[Stretch], Written | None]:
    def work(stretch: Stretch) -> Written | None:
        with engine(zookeeper, PATIENCE_SECONDS) as hosts:
            return archive_stretch(hosts, folder, stretch)

    return work
