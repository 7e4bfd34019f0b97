"""Dropping what queues no longer keep: each owned partition is trimmed, one after another, at an interval.

What is dropped may be in an archive, where readers find it from then on: so the store learns what is archived first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from delivery.cluster.ownership import Ownership
from delivery.cluster.partition import OwnedPartition
from delivery.errors import Fenced, HootError
from delivery.storage.base import MessageStore, PartitionKey

UNLIMITED_SECONDS: Final = 600.0
"""Partitions without a limit are looked at so often: a store may lose by itself what it was given under an earlier one,
and has to pass over that in time (half an hour, in HBase)."""

log = logging.getLogger(__name__)

Refresh = Callable[[Sequence[tuple[PartitionKey, str]]], None]
"""Has the store learn what is archived of partitions, each in its folder (storage.archive.ArchivedStore); blocking."""


class Retention:
    """Trims the owned partitions, those of queues that state an age or a size at each round. `run` owns the loop."""

    def __init__(
        self, ownership: Ownership, store: MessageStore, interval_seconds: float,
        on_trimmed: Callable[[str, int], None], refresh: Refresh | None = None,
    ) -> None:  # fmt: skip
        """`on_trimmed(queue, bytes)` hears of what was dropped."""
        self._ownership, self._store, self._refresh = ownership, store, refresh
        self._interval_seconds, self._on_trimmed = interval_seconds, on_trimmed
        self._on_dropped: list[Callable[[OwnedPartition], None]] = []
        self._limited: set[PartitionKey] = set()
        """Whose store was told of a limit last: it has to hear of the limit's end, too, once."""

    def on_dropped(self, callback: Callable[[OwnedPartition], None]) -> None:
        """Call `callback` whenever something of a partition was dropped."""
        self._on_dropped.append(callback)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Trim at the interval until cancelled; a partition that cannot be trimmed is logged and tried again."""
        unlimited_at = trio.current_time() + UNLIMITED_SECONDS
        task_status.started()
        while True:
            await trio.sleep(self._interval_seconds)
            if is_for_all := trio.current_time() >= unlimited_at:
                unlimited_at = trio.current_time() + UNLIMITED_SECONDS
            self._limited &= {owned.key for owned in self._ownership}
            known = await self._learn()
            for owned in self._ownership:
                if owned.settings.archive is None or owned.key in known:
                    await self._trim(owned, always=is_for_all)

    async def _learn(self) -> set[PartitionKey]:
        """The partitions of which the store knows now what is archived; the others are not trimmed this time."""
        archives = [(owned.key, owned.settings.archive) for owned in self._ownership]
        wanted = [(key, folder) for key, folder in archives if folder is not None]
        if not wanted or self._refresh is None:
            return set()
        try:
            await trio.to_thread.run_sync(partial(self._refresh, wanted))
        except HootError as error:
            log.warning("%d archived partitions are not trimmed now: %s", len(wanted), error)
            return set()
        return {key for key, _ in wanted}

    async def _trim(self, owned: OwnedPartition, *, always: bool) -> None:
        settings = owned.settings
        limited = settings.ttl_seconds is not None or settings.retention_bytes is not None
        if owned.feed.error is not None or not (limited or always or owned.key in self._limited):
            return
        now_ms = time.time_ns() // 1_000_000
        try:
            freed = await trio.to_thread.run_sync(self._store.trim, owned.key, settings, now_ms)
        except Fenced:
            self._ownership.fence(owned)
        except HootError as error:
            log.warning("%s cannot be trimmed: %s", owned.key, error)
        else:
            (self._limited.add if limited else self._limited.discard)(owned.key)
            if freed:
                log.info("%s: %d bytes dropped by retention", owned.key, freed)
                self._on_trimmed(owned.key.queue, freed)
                for callback in self._on_dropped:
                    callback(owned)
