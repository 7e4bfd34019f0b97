"""The catalog's owners of partitions: a record that moves by compare-and-set, so that its epoch only grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from delivery.errors import BadVersion, CorruptRecord, HootError, InvalidRequest
from delivery.metastore.errors import KeyExists, NoKey, NoOwnerInfo, OwnerInfoExists
from delivery.metastore.managers.records import OwnerInfo, PersistenceInfo, SealedRange
from delivery.metastore.queues import Queues
from delivery.metastore.tables.versions import Version, Versioned

NEVER_OWNED: Final = Version.NEW.number
"""The version of a partition that has no record yet."""


class Sealed(Protocol):
    """What an owner found in a partition that older epochs left."""

    @property
    def queue(self) -> str:
        """The queue's name."""

    @property
    def partition(self) -> int:
        """The partition's number."""

    @property
    def epoch(self) -> int:
        """The owner's."""

    @property
    def ranges(self) -> tuple[SealedRange, ...]:
        """Oldest first."""


Present = Versioned[PersistenceInfo] | CorruptRecord | None


class Partitions(Queues):
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
        found, corrupt = self.readable_owners(queue)
        if corrupt:
            raise corrupt[0]
        return found

    def readable_owners(self, queue: str) -> tuple[dict[int, OwnerInfo], list[CorruptRecord]]:
        """The owned partitions of a queue, and why records of others cannot be read. Raises UnknownQueue."""
        numbers = range(self.queue(queue).settings.partitions)
        found = self.managers.owners.read_owner_infos([(queue, number) for number in numbers])
        owners = {
            number: one.value
            for number, one in zip(numbers, found, strict=True)
            if isinstance(one, Versioned) and one.value.host
        }
        return owners, [one for one in found if isinstance(one, CorruptRecord)]

    def record_sealed(self, found: Sequence[Sealed]) -> list[HootError | None]:
        """Write what owners found that older epochs left, each by itself: None, or why not.

        One that a newer owner has written is left alone, a damaged one is written over, and nothing is written where
        nothing changes.
        """
        persistence = self.managers.persistence
        present = persistence.read_topic_persistence_infos([(one.queue, one.partition) for one in found])
        outcomes: list[HootError | None] = [None] * len(found)
        writing = [at for at, (one, there) in enumerate(zip(found, present, strict=True)) if _is_news(one, there)]
        writes = [
            (found[at].queue, found[at].partition, PersistenceInfo(found[at].ranges), _version_of(present[at]))
            for at in writing
        ]
        for at, outcome in zip(writing, persistence.write_topic_persistence_infos(writes), strict=True):
            # Somebody who wrote at the same time is a newer owner, or one that finds the newer there.
            if isinstance(outcome, HootError) and not isinstance(outcome, BadVersion | NoKey | KeyExists):
                outcomes[at] = outcome
        return outcomes

    def _check_queue_of(self, queue: str, partition: int, version: Version) -> None:
        """A first record must not outlive a queue that was deleted meanwhile."""
        if self.managers.queues.read_version(queue) is None:
            self.managers.owners.delete_owner_info(queue, partition, version)
            raise self._unknown_queue(queue)


def _is_news(found: Sealed, present: Present) -> bool:
    if isinstance(present, Versioned):
        ranges = present.value.ranges
        return ranges != found.ranges and not (ranges and ranges[-1].epoch >= found.epoch)
    return isinstance(present, CorruptRecord) or bool(found.ranges)


def _version_of(present: Present) -> Version:
    if isinstance(present, Versioned):
        return present.version
    return Version.NEW if present is None else Version.ANY
