"""The catalog's owners of partitions: a record that moves by compare-and-set, so that its epoch only grows."""

from __future__ import annotations

from typing import Final

from delivery.errors import BadVersion, CorruptRecord, InvalidRequest, NoOwnerInfo, OwnerInfoExists
from delivery.metastore.access import Access
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.queues import Queues
from delivery.metastore.tables.versions import Version

NEVER_OWNED: Final = Version.NEW.number
"""The version of a partition that has no record yet."""


class Partitions(Queues, Access):
    """The owners of partitions. One counts while its host is registered by that session; not checked here."""

    def partition(self, queue: str, partition: int) -> tuple[OwnerInfo | None, int]:
        """The owner's record and its version; (None, NEVER_OWNED) before the first. Raises CorruptRecord.

        A record without a host was released: nobody owns the partition.
        """
        found = self.managers.owners.read_owner_info(queue, partition)
        return (None, NEVER_OWNED) if found is None else (found.value, found.version.number)

    def claim(self, queue: str, partition: int, host: str, session: int, expected_version: int) -> OwnerInfo:
        """Make `host` the owner under the next epoch, if the record still has `expected_version`.

        Of several who claim at once exactly one succeeds; its record then has version `expected_version + 1`, which is
        what `release` asks for. Raises BadVersion for the others, UnknownQueue, CorruptRecord.
        """
        current, version = self.partition(queue, partition)
        if version != expected_version:
            raise BadVersion(f"partition {partition} of queue {queue!r} was claimed by another host")
        owner = OwnerInfo(host, session, (current.epoch if current else 0) + 1)
        try:
            written = self.managers.owners.write_owner_info(queue, partition, owner, Version(version))
        except NoOwnerInfo:
            raise self._unknown_queue(queue) from None
        except OwnerInfoExists:
            raise BadVersion(f"partition {partition} of queue {queue!r} was claimed by another host") from None
        except InvalidRequest as error:
            raise CorruptRecord(f"after partition {partition} of queue {queue!r}: {error.message}") from None
        if version == NEVER_OWNED:
            self._check_queue_of(queue, partition, written)
        return owner

    def release(self, queue: str, partition: int, epoch: int, version: int) -> None:
        """Give a partition up: the epoch stays, the owner goes.

        Raises BadVersion when somebody else has claimed it, or its queue is gone.
        """
        assert version >= 0, "only an owner gives a partition up"
        try:
            self.managers.owners.write_owner_info(queue, partition, OwnerInfo("", 0, epoch), Version(version))
        except NoOwnerInfo as error:
            raise BadVersion(error.message) from None

    def owners(self, queue: str) -> dict[int, OwnerInfo]:
        """The owned partitions of a queue. Raises UnknownQueue, CorruptRecord."""
        numbers = range(self.queue(queue).settings.partitions)
        owners: dict[int, OwnerInfo] = {}
        for number, found in zip(
            numbers, self.managers.owners.read_owner_infos([(queue, number) for number in numbers]), strict=True
        ):
            if isinstance(found, CorruptRecord):
                raise found
            if found is not None and found.value.host:
                owners[number] = found.value
        return owners

    def _check_queue_of(self, queue: str, partition: int, version: Version) -> None:
        """A first record must not outlive a queue that was deleted meanwhile."""
        if self.managers.queues.read_version(queue) is None:
            self.managers.owners.delete_owner_info(queue, partition, version)
            raise self._unknown_queue(queue)
