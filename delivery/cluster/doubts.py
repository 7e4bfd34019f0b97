"""Partitions that another host may have by now: their records are looked at until ZooKeeper answers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from delivery.cluster.claims import Directory
from delivery.cluster.partition import OwnedPartition
from delivery.errors import HootError

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 1.0
"""Before ZooKeeper is asked again after it did not answer."""


class Doubts:
    """What is in doubt. For the trio thread; reading hops to another."""

    def __init__(self, directory: Directory, limiter: trio.CapacityLimiter) -> None:
        self._directory, self._limiter = directory, limiter
        self._due: list[OwnedPartition] = []

    @property
    def pause(self) -> float:
        """Seconds after which to `settle` again; infinite while nothing is in doubt."""
        return _PAUSE_SECONDS if self._due else math.inf

    def add(self, owned: OwnedPartition) -> None:
        """It is to be looked at."""
        self._due.append(owned)

    async def settle(self, fence: Callable[[OwnedPartition], None]) -> None:
        """Call `fence` with each that another host has; those that cannot be looked at now stay in doubt."""
        due, self._due = self._due, []
        for owned in due:
            if owned.feed.error is None and await self._is_lost(owned):
                fence(owned)

    async def _is_lost(self, owned: OwnedPartition) -> bool:
        try:
            read = partial(self._directory.partition, owned.key.queue, owned.key.partition)
            _, version = await trio.to_thread.run_sync(read, limiter=self._limiter)
        except HootError as error:
            log.debug("%s: its owner cannot be read: %s", owned.key, error)
            if error.retryable:
                self.add(owned)
            return False
        return version != owned.version
