"""What follows when partitions are no longer owned: their files are closed, those of deleted queues are removed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from delivery.errors import HootError
from delivery.storage.base import MessageStore, PartitionKey

log = logging.getLogger(__name__)


class Cleaning:
    """What is left to clean. For the trio thread; `Ownership.run` calls `clean` whenever something is due."""

    def __init__(
        self, store: MessageStore, locks: dict[PartitionKey, trio.Lock], is_owned: Callable[[PartitionKey], bool],
        limiter: trio.CapacityLimiter,
    ) -> None:  # fmt: skip
        """`locks` are those that claims hold, made when they are needed; a deleted queue's are removed."""
        self._store, self._locks, self._is_owned, self._limiter = store, locks, is_owned, limiter
        self._to_release: dict[PartitionKey, None] = {}  # a set has another order in each process
        self._to_delete: set[tuple[str, str]] = set()

    def release(self, key: PartitionKey) -> None:
        """Close a partition, unless it is owned anew by then."""
        self._to_release[key] = None

    def keep(self, key: PartitionKey) -> None:
        """It is owned again."""
        self._to_release.pop(key, None)

    def delete(self, queue: str, generation: str) -> None:
        """Remove what was stored of a queue."""
        self._to_delete.add((queue, generation))

    async def clean(self) -> None:
        """Do all that is due."""
        while self._to_release:
            await self._release(self._to_release.popitem()[0])
        while self._to_delete:
            await self._delete(*self._to_delete.pop())

    async def _release(self, key: PartitionKey) -> None:
        async with self._locks.setdefault(key, trio.Lock()):
            if not self._is_owned(key):
                await trio.to_thread.run_sync(self._store.release, key, limiter=self._limiter)

    async def _delete(self, queue: str, generation: str) -> None:
        for key in [key for key in self._locks if (key.queue, key.generation) == (queue, generation)]:
            async with self._locks[key]:
                await trio.to_thread.run_sync(self._store.release, key, limiter=self._limiter)
            del self._locks[key]
        try:
            await trio.to_thread.run_sync(self._store.delete, queue, generation, limiter=self._limiter)
            log.info("queue %s: what was stored of generation %s is deleted", queue, generation)
        except HootError as error:
            log.error("queue %s: what was stored of generation %s cannot be deleted: %s", queue, generation, error)
