"""Who owns a partition: a persistent record that moves by compare-and-set, so that its epoch only grows."""

from __future__ import annotations

from typing import Final

from delivery.errors import BadVersion, CorruptRecord
from delivery.metastore import records
from delivery.metastore.access import Access, checked_partition
from delivery.metastore.ops import Create, NoNode, Set
from delivery.metastore.records import PartitionRecord
from delivery.model import check_name

NEVER_OWNED: Final = -1
"""The version of a partition that has no record yet."""
EPOCH_MAX: Final = 10**10 - 1
"""Epochs have ten digits in the names of segments."""


class Partitions(Access):
    """The owners of partitions. One counts while its host is registered by that session; not checked here."""

    def partition(self, queue: str, partition: int) -> tuple[PartitionRecord | None, int]:
        """The owner's record and its version; (None, NEVER_OWNED) before the first. Raises CorruptRecord.

        A record without a host was released: nobody owns the partition.
        """
        path = self._partition_path(queue, partition)
        found = self._zk.get(path)
        if found is None:
            return None, NEVER_OWNED
        return _checked(path, records.decode(found[0], PartitionRecord, path)), found[1]

    def claim(self, queue: str, partition: int, host: str, session: int, expected_version: int) -> PartitionRecord:
        """Make `host` the owner under the next epoch, if the record still has `expected_version`.

        Of several who claim at once exactly one succeeds; its record then has version `expected_version + 1`, which is
        what `save_checkpoints` and `release` ask for. Raises BadVersion for the others, UnknownQueue, CorruptRecord.
        """
        path = self._partition_path(queue, partition)
        current, version = self.partition(queue, partition)
        if version != expected_version:
            raise BadVersion(f"partition {partition} of queue {queue!r} was claimed by another host")
        record = _checked(path, PartitionRecord((current.epoch if current else 0) + 1, host, session))
        value = records.encode(record)
        op = Create(path, value) if version == NEVER_OWNED else Set(path, value, version)
        refused = self._apply([op], path, value)
        if refused is None:
            return record
        if isinstance(refused.error, NoNode):
            raise self._unknown_queue(queue)
        raise BadVersion(f"partition {partition} of queue {queue!r} was claimed by another host")

    def release(self, queue: str, partition: int, epoch: int, version: int) -> None:
        """Give a partition up: the epoch stays, the owner goes. Save checkpoints before, they need the version.

        Raises BadVersion when somebody else has claimed it, NoNode (a BadVersion) when its queue is gone.
        """
        assert version >= 0, "only an owner gives a partition up"
        path = self._partition_path(queue, partition)
        self._zk.set(path, records.encode(PartitionRecord(epoch, "", 0)), version)

    def owners(self, queue: str) -> dict[int, PartitionRecord]:
        """The owned partitions of a queue. Raises UnknownQueue, CorruptRecord."""
        found, corrupt = self.readable_owners(queue)
        if corrupt:
            raise corrupt[0]
        return found

    def readable_owners(self, queue: str) -> tuple[dict[int, PartitionRecord], list[CorruptRecord]]:
        """The owned partitions of a queue, and why what else lies beside them cannot be read. Raises UnknownQueue."""
        folder = records.partitions_path(check_name("queue", queue))
        found: dict[int, PartitionRecord] = {}
        numbers: list[int] = []
        corrupt: list[CorruptRecord] = []
        for name in self._names(folder, queue):
            try:
                numbers += self._partitions(folder, [name])
            except CorruptRecord as error:
                corrupt.append(error)
        paths = [records.partition_path(queue, number) for number in numbers]
        for number, path, value in zip(numbers, paths, self._zk.get_many(paths), strict=True):
            try:
                if value is not None:
                    found[number] = _checked(path, records.decode(value[0], PartitionRecord, path))
            except CorruptRecord as error:
                corrupt.append(error)
        return {number: record for number, record in found.items() if record.host}, corrupt

    def _partition_path(self, queue: str, partition: int) -> str:
        return records.partition_path(check_name("queue", queue), checked_partition(queue, partition))


def _checked(path: str, record: PartitionRecord) -> PartitionRecord:
    if not 1 <= record.epoch <= EPOCH_MAX:
        raise CorruptRecord(f"the value of {path} cannot be: epoch {record.epoch}")
    return record
