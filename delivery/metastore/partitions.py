"""The catalog's owners of partitions: a record that moves by compare-and-set, so that its epoch only grows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, Protocol

import msgspec

from delivery.errors import BadVersion, CorruptRecord, HootError, UnknownQueue
from delivery.metastore.access import ATTEMPTS, give_way
from delivery.metastore.errors import KeyExists, NoKey, NoOwnerInfo, OwnerInfoExists
from delivery.metastore.managers.records import OwnerInfo, PersistenceInfo, SealedRange, check_owner
from delivery.metastore.queues import Queues
from delivery.metastore.tables.versions import Version, Versioned

NEVER_OWNED: Final = Version.NEW.number
"""The version of a partition that has no record yet."""


Seen = tuple[OwnerInfo | None, int]
"""The owner's record and its version, (None, NEVER_OWNED) where there is none."""


class Claim(msgspec.Struct, frozen=True):
    """The next owner of a partition, and the version that its record had when that was decided."""

    queue: str
    partition: int
    owner: OwnerInfo
    version: int


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

    def partition(self, queue: str, partition: int) -> Seen:
        """The owner's record and its version; (None, NEVER_OWNED) before the first. Raises CorruptRecord.

        A record without a host was released: nobody owns the partition.
        """
        return _seen(self.managers.owners.read_owner_info(queue, partition))

    def partitions(self, places: Sequence[tuple[str, int]]) -> list[Seen | CorruptRecord]:
        """`partition` of many (queue, partition); a damaged record is its error."""
        found = self.managers.owners.read_owner_infos(places)
        return [one if isinstance(one, CorruptRecord) else _seen(one) for one in found]

    def claim(self, queue: str, partition: int, host: str, session: int, expected_version: int) -> OwnerInfo:
        """Make `host` the owner under the next epoch, if the record still has `expected_version`.

        Raises BadVersion, and what else `claim_many` answers with.
        """
        current, version = self.partition(queue, partition)
        if version != expected_version:
            raise _others_claimed(queue, partition)
        claim = Claim(queue, partition, next_owner(current, host, session), version)
        if (error := self.claim_many([claim])[0]) is not None:
            raise error
        return claim.owner

    def claim_many(self, claims: Sequence[Claim]) -> list[HootError | None]:
        """Write many owners in few requests, each by itself: None, or why not.

        Of several who claim a partition at once exactly one succeeds; its record then has the claim's version + 1,
        which is what `release` asks for. BadVersion for the others; UnknownQueue; CorruptRecord where there is no next
        epoch.
        """
        outcomes: list[HootError | None] = [_without_epoch(claim) for claim in claims]
        trying = [(at, claim) for at, claim in enumerate(claims) if outcomes[at] is None]
        written = self.managers.owners.write_owner_infos(
            [(claim.queue, claim.partition, claim.owner, Version(claim.version)) for _, claim in trying]
        )
        ends = cache(self._end_of)
        for (at, claim), outcome in zip(trying, written, strict=True):
            if isinstance(outcome, NoOwnerInfo):
                outcomes[at] = self._unknown_queue(claim.queue)
            elif isinstance(outcome, OwnerInfoExists | BadVersion):
                outcomes[at] = _others_claimed(claim.queue, claim.partition)
            elif isinstance(outcome, HootError):
                outcomes[at] = outcome
            elif claim.version == NEVER_OWNED and (end := ends(claim.queue)) is not None:
                outcomes[at] = self._take_back(claim, outcome) or end
        return outcomes

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
        nothing changes. What is archived stays.
        """
        outcomes = self._write_sealed(found)
        for attempt in range(1, ATTEMPTS):
            # Who wrote at the same time may have archived something; a newer owner is found there.
            late = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, BadVersion | KeyExists)]
            if not late:
                break
            give_way(attempt)
            for at, outcome in zip(late, self._write_sealed([found[at] for at in late]), strict=True):
                outcomes[at] = outcome
        return outcomes

    def _write_sealed(self, found: Sequence[Sealed]) -> list[HootError | None]:
        persistence = self.managers.persistence
        present = persistence.read_topic_persistence_infos([(one.queue, one.partition) for one in found])
        outcomes: list[HootError | None] = [None] * len(found)
        writing = [at for at, (one, there) in enumerate(zip(found, present, strict=True)) if _is_news(one, there)]
        writes = [
            (one.queue, one.partition, _with_ranges(there, one.ranges), _version_of(there))
            for one, there in ((found[at], present[at]) for at in writing)
        ]
        for at, outcome in zip(writing, persistence.write_topic_persistence_infos(writes), strict=True):
            if isinstance(outcome, HootError) and not isinstance(outcome, NoKey):  # which the queue took along
                outcomes[at] = outcome
        return outcomes

    def _end_of(self, queue: str) -> UnknownQueue | None:
        """That there is no such queue, None when there is."""
        return self._unknown_queue(queue) if self.managers.queues.read_version(queue) is None else None

    def _take_back(self, claim: Claim, version: Version) -> HootError | None:
        """A first record must not outlive a queue that was deleted meanwhile: delete it; None, or why not."""
        try:
            self.managers.owners.delete_owner_info(claim.queue, claim.partition, version)
        except (NoOwnerInfo, BadVersion):
            return None  # it is gone with the queue, or one of its name has come, and another owner
        except HootError as error:
            return error
        return None


def next_owner(current: OwnerInfo | None, host: str, session: int) -> OwnerInfo:
    """The record that follows `current`, or that is the first."""
    return OwnerInfo(host, session, (current.epoch if current else 0) + 1)


def _seen(found: Versioned[OwnerInfo] | None) -> Seen:
    return (None, NEVER_OWNED) if found is None else (found.value, found.version.number)


def _without_epoch(claim: Claim) -> CorruptRecord | None:
    wrong = check_owner(claim.owner)
    return CorruptRecord(f"after partition {claim.partition} of queue {claim.queue!r}: {wrong}") if wrong else None


def _others_claimed(queue: str, partition: int) -> BadVersion:
    return BadVersion(f"partition {partition} of queue {queue!r} was claimed by another host")


def _is_news(found: Sealed, present: Present) -> bool:
    if isinstance(present, Versioned):
        ranges = present.value.ranges
        return ranges != found.ranges and not (ranges and ranges[-1].epoch >= found.epoch)
    return isinstance(present, CorruptRecord) or bool(found.ranges)


def _with_ranges(present: Present, ranges: tuple[SealedRange, ...]) -> PersistenceInfo:
    return PersistenceInfo(ranges, present.value.archived if isinstance(present, Versioned) else ())


def _version_of(present: Present) -> Version:
    if isinstance(present, Versioned):
        return present.version
    return Version.NEW if present is None else Version.ANY
