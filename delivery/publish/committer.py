"""Group commit: whatever was stamped while one group was being stored is the next group. No timer, no delay.

One hop to the committing thread and one flush per group, over all partitions. While a group is in the thread the next
one gathers, so a slow disk makes larger groups by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import Protocol

import trio

from delivery.errors import HootError, ServiceStopping, StorageUnavailable, again
from delivery.metrics import Metrics
from delivery.publish.writer import Entry
from delivery.storage.base import MessageStore

log = logging.getLogger(__name__)

Group = list[Entry]


class Outcomes(Protocol):
    """Who hears how each entry ended: exactly one of these, once."""

    def stored(self, entry: Entry) -> None:
        """It is durable, in the order of its partition."""

    def failed(self, entry: Entry, error: HootError) -> None:
        """The store could not confirm it: it may be stored or not, and its partition must be opened anew."""

    def refused(self, entry: Entry, error: HootError) -> None:
        """It never reached the store."""


class Committer:
    """Stores entries in the order in which they were added. `run` owns the thread; all else is for the trio thread.

    A thread of its own takes a group over in less time than `trio.to_thread` does, and a publish waits for that.
    """

    def __init__(self, store: MessageStore, metrics: Metrics, group_bytes: int, outcomes: Outcomes) -> None:
        """A group holds at most `group_bytes`, or one batch."""
        self._store, self._metrics, self._group_bytes = store, metrics, group_bytes
        self._outcomes = outcomes
        self._entries: deque[Entry] = deque()
        self._groups: SimpleQueue[Group | None] = SimpleQueue()
        self._idle = trio.lowlevel.ParkingLot()
        self._committing = False
        self._token: trio.lowlevel.TrioToken | None = None

    def add(self, entry: Entry) -> None:
        """Store this batch with the next group."""
        self._entries.append(entry)
        self._commit()

    async def drained(self) -> None:
        """Return when everything added so far has been settled."""
        while self._entries or self._committing:
            await self._idle.park()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit until cancelled. What has not reached the store by then ends with ServiceStopping: not stored.

        A group that the thread has is waited for.
        """
        self._token = trio.lowlevel.current_trio_token()
        thread = threading.Thread(target=self._work, name="hoot-commit", daemon=True)
        thread.start()
        self._commit()
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            self._token = None
            while self._entries:
                self._outcomes.refused(self._entries.popleft(), ServiceStopping(_STOPPING))
            self._groups.put(None)
            with trio.CancelScope(shield=True):
                await self.drained()

    def _commit(self) -> None:
        """Hand the next group to the thread, unless it has one."""
        if self._committing or self._token is None:
            return
        if group := self._take():
            self._committing = True
            self._groups.put(group)
        else:
            self._idle.unpark_all()

    def _take(self) -> Group:
        """The next group, without the batches of partitions that were lost: those were never stored."""
        group: Group = []
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

    def _settle(self, group: Group, answers: list[HootError | None], seconds: float) -> None:
        self._metrics.committed(len(group), seconds)
        self._committing = False
        if not any(answers):
            self._commit()  # first, so that the thread works on while the outcomes are told
        for entry, error in zip(group, answers, strict=True):
            if error is None:
                self._outcomes.stored(entry)
            else:
                self._outcomes.failed(entry, error)
        self._commit()
        if not self._committing:
            self._idle.unpark_all()

    # -- in the thread

    def _work(self) -> None:
        token = self._token
        assert token is not None
        while (group := self._groups.get()) is not None:
            begun = time.monotonic()
            answers = self._append(group)
            token.run_sync_soon(self._settle, group, answers, time.monotonic() - begun)

    def _append(self, group: Group) -> list[HootError | None]:
        try:
            return self._store.append([entry.append for entry in group])
        except HootError as error:
            return [error] * len(group)
        except Exception as error:
            log.exception("the store failed in a way nobody foresaw")
            return [StorageUnavailable(f"the store failed: {type(error).__name__}: {error}")] * len(group)


_STOPPING = "the host is stopping; this was not stored"
