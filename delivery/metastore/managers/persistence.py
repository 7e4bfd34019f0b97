"""What is stored of a partition (seed 000, TopicPersistenceManager): the ids that each epoch was sealed with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from delivery.errors import CorruptRecord, HootError
from delivery.metastore.errors import NoPersistenceInfo, PersistenceInfoExists
from delivery.metastore.managers.partitions import Page, PartitionInfos
from delivery.metastore.managers.records import Codec, PersistenceInfo, check_persistence
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.versions import Version, Versioned

TABLE = "persistence"


class TopicPersistenceManager:
    """Records of sealed ranges. Blocking and thread-safe."""

    def __init__(self, store: MetaStore) -> None:
        codec = Codec("ranges", PersistenceInfo, check_persistence, TABLE)
        errors = (NoPersistenceInfo, PersistenceInfoExists)
        self._infos = PartitionInfos(store, codec, errors, "record of sealed ranges")

    def read_topic_persistence_info(self, queue: str, partition: int) -> Versioned[PersistenceInfo] | None:
        """The sealed ranges and their version; None when there is no record. Raises CorruptRecord."""
        return self._infos.read(queue, partition)

    def write_topic_persistence_info(
        self, queue: str, partition: int, info: PersistenceInfo, version: Version
    ) -> Version:
        """Write `info` when the record has `version`, NEW for the first; gives the new version.

        Raises BadVersion, PersistenceInfoExists for NEW on a record that is there, NoPersistenceInfo for another
        version on none, InvalidRequest for ranges that overlap or go back, ValueTooLarge above some 8,000 of them.
        """
        return self._infos.write(queue, partition, info, version)

    def read_topic_persistence_infos(
        self, partitions: Sequence[tuple[str, int]]
    ) -> list[Versioned[PersistenceInfo] | CorruptRecord | None]:
        """The records of many (queue, partition) at a time; a damaged one is its error."""
        return self._infos.read_many(partitions)

    def write_topic_persistence_infos(
        self, writes: Sequence[tuple[str, int, PersistenceInfo, Version]]
    ) -> list[Version | HootError]:
        """Many writes in few requests, each by itself."""
        return self._infos.write_many(writes)

    def delete_topic_persistence_info(self, queue: str, partition: int, version: Version) -> None:
        """Delete the record of this version. Raises BadVersion, NoPersistenceInfo."""
        self._infos.delete(queue, partition, version)

    def delete_topic_persistence_infos(self, places: Iterable[tuple[str, int]]) -> None:
        """Delete the records of many (queue, partition) whose queue ends, whatever their version."""
        self._infos.delete_all(places)

    def topic_persistence_info_pages(self, entries: int = 1000) -> Iterator[Page[PersistenceInfo]]:
        """Everybody's records, page by page: (queue, partition, record or CorruptRecord)."""
        return self._infos.pages(entries)
