"""The catalog's archives: which ranges of a partition are in files, kept in its persistence info (seed 000)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from delivery.errors import ArchiveRefused, BadVersion, CorruptRecord
from delivery.metastore.access import ATTEMPTS, crowded, give_way
from delivery.metastore.errors import KeyExists
from delivery.metastore.managers.records import PersistenceInfo
from delivery.metastore.partitions import Partitions
from delivery.metastore.tables.versions import Version
from delivery.model import ArchivedRange


class Archives(Partitions):
    """Reading and growing what is archived."""

    def archived(self, queue: str, partition: int) -> tuple[ArchivedRange, ...]:
        """The files of a partition's archive, oldest first. Raises CorruptRecord."""
        [found] = self.archived_of([(queue, partition)])
        if isinstance(found, CorruptRecord):
            raise found
        return found

    def archived_of(self, places: Sequence[tuple[str, int]]) -> list[tuple[ArchivedRange, ...] | CorruptRecord]:
        """Of many (queue, partition); a damaged record is its error."""
        found = self.managers.persistence.read_topic_persistence_infos(places)
        return [one if isinstance(one, CorruptRecord) else one.value.archived if one else () for one in found]

    def record_archived(
        self, queue: str, generation: str, partition: int, present: Sequence[ArchivedRange],
        added: Sequence[ArchivedRange],
    ) -> None:  # fmt: skip
        """Put files behind those that are `present`, by compare-and-set.

        Raises ArchiveRefused when others are present meanwhile or the queue is another one, BadVersion when others
        change the record time and again, ValueTooLarge above some 8,000 files.
        """
        manager, wanted = self.managers.persistence, (*present, *added)
        for attempt in range(ATTEMPTS):
            give_way(attempt)
            if self.queue(queue).generation != generation:
                raise ArchiveRefused(f"queue {queue!r} was deleted and made again meanwhile: nothing was recorded")
            found = manager.read_topic_persistence_info(queue, partition)
            info = PersistenceInfo(()) if found is None else found.value
            if info.archived == wanted:
                return
            if info.archived != tuple(present):
                raise ArchiveRefused(f"another job archived {queue}/{partition} meanwhile: run this one again")
            changed = msgspec.structs.replace(info, archived=wanted)
            try:
                version = Version.NEW if found is None else found.version
                manager.write_topic_persistence_info(queue, partition, changed, version)
            except (BadVersion, KeyExists):
                continue  # an owner told what older epochs left
            return
        raise crowded(f"the archive of {queue}/{partition}")
