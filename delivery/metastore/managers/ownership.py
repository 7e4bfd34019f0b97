"""Who owns a partition (seed 000, TopicOwnershipManager), by compare-and-set over any MetaStore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from delivery.errors import CorruptRecord, HootError
from delivery.metastore.errors import NoOwnerInfo, OwnerInfoExists
from delivery.metastore.managers.partitions import Page, PartitionInfos
from delivery.metastore.managers.records import Codec, OwnerInfo, check_owner
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.versions import Version, Versioned

TABLE = "owners"


class TopicOwnershipManager:
    """Owner records. Blocking and thread-safe. Whether the host of one lives is not known here."""

    def __init__(self, store: MetaStore) -> None:
        codec = Codec("owner", OwnerInfo, check_owner, TABLE)
        self._infos = PartitionInfos(store, codec, (NoOwnerInfo, OwnerInfoExists), "owner record")

    def read_owner_info(self, queue: str, partition: int) -> Versioned[OwnerInfo] | None:
        """The owner's record and its version; None when there never was one. Raises CorruptRecord."""
        return self._infos.read(queue, partition)

    def read_owner_infos(
        self, partitions: Sequence[tuple[str, int]]
    ) -> list[Versioned[OwnerInfo] | CorruptRecord | None]:
        """The same of many (queue, partition) at a time; a damaged record is its error."""
        return self._infos.read_many(partitions)

    def write_owner_info(self, queue: str, partition: int, owner: OwnerInfo, version: Version) -> Version:
        """Write `owner` when the record has `version`, NEW for the first; gives the new version.

        Of several who write at once under one version exactly one succeeds. Raises BadVersion, OwnerInfoExists for
        NEW on a record that is there, NoOwnerInfo for another version on none.
        """
        return self._infos.write(queue, partition, owner, version)

    def write_owner_infos(self, writes: Sequence[tuple[str, int, OwnerInfo, Version]]) -> list[Version | HootError]:
        """Many writes in few requests, each by itself: its new version, or what `write_owner_info` raises."""
        return self._infos.write_many(writes)

    def delete_owner_info(self, queue: str, partition: int, version: Version) -> None:
        """Delete the record of this version. Raises BadVersion, NoOwnerInfo. The epochs begin anew afterwards."""
        self._infos.delete(queue, partition, version)

    def delete_owner_infos(self, places: Iterable[tuple[str, int]]) -> None:
        """Delete the records of many (queue, partition) whose queue ends, whatever their version."""
        self._infos.delete_all(places)

    def owner_info_pages(self, entries: int = 1000) -> Iterator[Page[OwnerInfo]]:
        """Everybody's records, page by page: (queue, partition, record or CorruptRecord)."""
        return self._infos.pages(entries)
