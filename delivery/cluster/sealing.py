"""Telling the MetaStore what earlier epochs left in a partition (seed 000, TopicPersistenceManager).

The store knows by itself, so this is for whoever looks from outside, and nobody waits for it: what a moment's takeovers
and retention have changed is gathered and written together, and tried again later when the MetaStore cannot take it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
import trio

from delivery.cluster.bell import Doorbell
from delivery.cluster.partition import OwnedPartition
from delivery.errors import HootError
from delivery.metastore.managers.records import SealedRange

log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 5.0
WRITTEN_AT_ONCE: Final = 200
RANGES_MAX: Final = 5000
"""Of one partition; of more the newest are told. A record holds some 8,000."""


class Sealed(msgspec.Struct, frozen=True):
    """What an owner found in a partition that older epochs left."""

    queue: str
    partition: int
    epoch: int
    """The owner's."""
    ranges: tuple[SealedRange, ...]


class SealedRecords(Protocol):
    """Where sealed ranges are kept (metastore.catalog.Catalog); blocking."""

    def record_sealed(self, found: Sequence[Sealed]) -> list[HootError | None]:
        """Write many, each by itself, unless a newer owner has: None, or why not."""


class Sealing:
    """Gathers what is to be told. For the trio thread; `run` owns the writing."""

    def __init__(self, records: SealedRecords, *, gather_seconds: float = GATHER_SECONDS) -> None:
        self._records, self._gather_seconds = records, gather_seconds
        self._due: dict[tuple[str, int], OwnedPartition] = {}
        self._bell: Doorbell | None = None

    @property
    def due(self) -> int:
        """Partitions of which something is still to be told."""
        return len(self._due)

    def taken(self, owned: OwnedPartition) -> None:
        """This host has opened a partition. The first epoch finds nothing."""
        if owned.epoch > 1:
            self._note(owned)

    def trimmed(self, owned: OwnedPartition) -> None:
        """Retention has dropped something of a partition."""
        if owned.sealed:
            self._note(owned)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tell what is due, until cancelled."""
        self._bell = Doorbell()
        task_status.started()
        while True:
            while not self._due:
                await self._bell.wait()
            await trio.sleep(self._gather_seconds)
            if not await self._tell():
                await trio.sleep(PAUSE_SECONDS)

    async def _tell(self) -> bool:
        """Write some of what is due. False when it could not be written; then it stays due."""
        owned = list(self._due.values())[:WRITTEN_AT_ONCE]
        for one in owned:
            del self._due[one.key.queue, one.key.partition]
        try:
            found = [await self._sealed(one) for one in owned if one.feed.error is None]
            outcomes = await trio.to_thread.run_sync(self._records.record_sealed, found)
        except HootError as error:
            log.debug("what older epochs left cannot be told now: %s", error)
            for one in owned:
                self._due.setdefault((one.key.queue, one.key.partition), one)
            return False
        for sealed, outcome in zip(found, outcomes, strict=True):
            if outcome is not None:
                log.warning("%s/%d: what older epochs left is not told: %s", sealed.queue, sealed.partition, outcome)
        return True

    async def _sealed(self, owned: OwnedPartition) -> Sealed:
        """What is there still of what older epochs left."""
        if owned.sealed:
            bounds = await owned.bounds()
            first_id = bounds.first_id or bounds.last_id + 1
            owned.sealed = tuple(one for one in owned.sealed if one.last_id >= first_id)
        ranges = tuple(SealedRange(one.epoch, one.first_id, one.last_id) for one in owned.sealed[-RANGES_MAX:])
        return Sealed(owned.key.queue, owned.key.partition, owned.epoch, ranges)

    def _note(self, owned: OwnedPartition) -> None:
        self._due[owned.key.queue, owned.key.partition] = owned
        if self._bell is not None:
            self._bell.ring()
