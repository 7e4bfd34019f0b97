"""Group commit: whatever was stamped while one group was being stored is the next group. No timer, no delay.

One thread hop and one flush per group, over all partitions. While a group is in its thread the next one gathers, so a
slow disk makes larger groups by itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import trio

from delivery.cluster.feed import again
from delivery.errors import HootError, ServiceStopping, StorageUnavailable
from delivery.metrics import Metrics
from delivery.publish.writer import Entry
from delivery.storage.base import Append, MessageStore

log = logging.getLogger(__name__)


class Outcomes(Protocol):
    """Who hears how each entry ended: exactly one of these, once."""

    def stored(self, entry: Entry) -> None:
        """It is durable, in the order of its partition."""

    def failed(self, entry: Entry, error: HootError) -> None:
        """The store could not confirm it: it may be stored or not, and its partition must be opened anew."""

    def refused(self, entry: Entry, error: HootError) -> None:
        """It never reached the store."""


class Committer:
    """Stores entries in the order in which they were added. `run` owns the loop; for the trio thread."""

    def __init__(self, store: MessageStore, metrics: Metrics, group_bytes: int, outcomes: Outcomes) -> None:
        """A group holds at most `group_bytes`, or one batch."""
        self._store, self._metrics, self._group_bytes = store, metrics, group_bytes
        self._outcomes = outcomes
        self._entries: deque[Entry] = deque()
        self._filled = trio.lowlevel.ParkingLot()
        self._emptied = trio.lowlevel.ParkingLot()
        self._committing = False
        self._limiter = trio.CapacityLimiter(1)

    def add(self, entry: Entry) -> None:
        """Store this batch with the next group."""
        self._entries.append(entry)
        self._filled.unpark()

    async def drained(self) -> None:
        """Return when everything added so far has been settled."""
        while self._entries or self._committing:
            await self._emptied.park()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit until cancelled. What has not reached the store by then ends with ServiceStopping: not stored."""
        task_status.started()
        try:
            while True:
                while not self._entries:
                    self._emptied.unpark_all()
                    await self._filled.park()
                if group := self._take():
                    await self._commit(group)
        finally:
            while self._entries:
                self._outcomes.refused(self._entries.popleft(), _stopping())

    def _take(self) -> list[Entry]:
        """The next group, without the batches of partitions that were lost: those were never stored."""
        group: list[Entry] = []
        room = self._group_bytes
        while self._entries and (not group or len(self._entries[0].append.batch) <= room):
            entry = self._entries.popleft()
            lost = entry.writer.owned.feed.error
            if lost is not None:
                self._outcomes.refused(entry, again(lost))
                continue
            group.append(entry)
            room -= len(entry.append.batch)
        return group

    async def _commit(self, group: list[Entry]) -> None:
        start = trio.current_time()
        self._committing = True
        try:
            appends = [entry.append for entry in group]
            answers = await trio.to_thread.run_sync(self._append, appends, limiter=self._limiter)
        except trio.Cancelled:  # on the way in; once in its thread a group is waited for
            for entry in group:
                self._outcomes.refused(entry, _stopping())
            raise
        finally:
            self._committing = False
        self._metrics.committed(len(group), trio.current_time() - start)
        for entry, error in zip(group, answers, strict=True):
            if error is None:
                self._outcomes.stored(entry)
            else:
                self._outcomes.failed(entry, error)

    def _append(self, appends: Sequence[Append]) -> list[HootError | None]:
        try:
            return self._store.append(appends)
        except HootError as error:
            return [error] * len(appends)
        except Exception as error:
            log.exception("the store failed in a way nobody foresaw")
            return [StorageUnavailable(f"the store failed: {type(error).__name__}: {error}")] * len(appends)


def _stopping() -> ServiceStopping:
    return ServiceStopping("the host is stopping; this was not stored")
