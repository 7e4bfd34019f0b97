"""Dropping what queues no longer keep: each owned partition is trimmed, one after another, at an interval."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import trio

from delivery.cluster.ownership import Ownership
from delivery.cluster.partition import OwnedPartition
from delivery.errors import Fenced, HootError
from delivery.storage.base import MessageStore, PartitionKey

log = logging.getLogger(__name__)


class Retention:
    """Trims the owned partitions of queues that state an age or a size. `run` owns the loop."""

    def __init__(
        self, ownership: Ownership, store: MessageStore, interval_seconds: float, on_trimmed: Callable[[str, int], None]
    ) -> None:
        """`on_trimmed(queue, bytes)` hears of what was dropped."""
        self._ownership, self._store = ownership, store
        self._interval_seconds, self._on_trimmed = interval_seconds, on_trimmed
        self._on_dropped: list[Callable[[OwnedPartition], None]] = []
        self._limited: set[PartitionKey] = set()
        """Whose store was told of a limit last: it has to hear of the limit's end, too, once."""

    def on_dropped(self, callback: Callable[[OwnedPartition], None]) -> None:
        """Call `callback` whenever something of a partition was dropped."""
        self._on_dropped.append(callback)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Trim at the interval until cancelled; a partition that cannot be trimmed is logged and tried again."""
        task_status.started()
        while True:
            await trio.sleep(self._interval_seconds)
            self._limited &= {owned.key for owned in self._ownership}
            for owned in self._ownership:
                await self._trim(owned)

    async def _trim(self, owned: OwnedPartition) -> None:
        settings = owned.settings
        limited = settings.ttl_seconds is not None or settings.retention_bytes is not None
        if owned.feed.error is not None or not (limited or owned.key in self._limited):
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
