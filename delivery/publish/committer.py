"""Group commit: whatever was stamped while one group was being stored is the next group. No timer, no delay.

One hop to the lane and one flush per group, over all partitions. While a group is in the lane the next one gathers, so
a slow disk makes larger groups by itself. A batch that comes alone is stored without that hop where the store is quick
(see `haste`): one in a turn of the loop, so that what came with it gathers in the lane, and nothing waits for many.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import trio

from delivery.errors import HootError, ServiceStopping, again
from delivery.metrics import Metrics
from delivery.publish.haste import Haste
from delivery.publish.lane import Answers, CommitLane
from delivery.publish.writer import Entry
from delivery.storage.base import Append

Group = list[Entry]


class Outcomes(Protocol):
    """Who hears how each entry ended: exactly one of these, once."""

    def stored(self, entries: Sequence[Entry]) -> None:
        """These are durable, each in the order of its partition."""

    def failed(self, entry: Entry, error: HootError) -> None:
        """The store could not confirm it: it may be stored or not, and its partition must be opened anew."""

    def refused(self, entry: Entry, error: HootError) -> None:
        """It never reached the store."""


class Committer:
    """Stores entries in the order in which they were added. `run` opens and closes the lane. For the trio thread."""

    def __init__(self, lane: CommitLane, metrics: Metrics, group_bytes: int, outcomes: Outcomes) -> None:
        """A group holds at most `group_bytes`, or one batch."""
        self._lane, self._metrics, self._group_bytes = lane, metrics, group_bytes
        self._outcomes = outcomes
        self._entries: deque[Entry] = deque()
        self._underway: Group = []
        """What the lane has."""
        self._idle = trio.lowlevel.ParkingLot()
        self._open = False
        self._over = False
        self._haste = Haste()
        self._turn = trio.lowlevel.ParkingLot()
        """Where `run` waits, unless something was stored here in this turn of the loop."""

    def add(self, entry: Entry) -> None:
        """Store this batch with the next group; at the end of `run` it is refused."""
        if self._over:
            self._outcomes.refused(entry, ServiceStopping(_STOPPING))
            return
        self._entries.append(entry)
        self._commit(here=bool(self._turn) and self._haste.may(entry.append))

    async def drained(self) -> None:
        """Return when everything added so far has been settled."""
        while self._entries or self._underway:
            await self._idle.park()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit until cancelled. What has not reached the store by then ends with ServiceStopping: not stored.

        A group that the lane has is waited for.
        """
        self._lane.open(self._settle)
        self._open = True
        self._commit()
        task_status.started()
        try:
            while True:
                await self._turn.park()
        finally:
            self._open, self._over = False, True
            while self._entries:
                self._outcomes.refused(self._entries.popleft(), ServiceStopping(_STOPPING))
            self._lane.close()
            with trio.CancelScope(shield=True):
                await self.drained()

    def _commit(self, *, here: bool = False) -> None:
        """Store the next group, unless one is under way: in the lane, or `here` if it may be."""
        if self._underway:
            return
        group = self._take() if self._open else []
        if not group:
            if self._idle:
                self._idle.unpark_all()
            return
        self._underway = group
        if not (here and len(group) == 1 and self._stored_here(group[0].append)):
            self._lane.put([entry.append for entry in group])

    def _stored_here(self, item: Append) -> bool:
        begun = time.monotonic()
        answers = self._lane.at_once(item)
        if answers is None:
            return False
        self._settle(answers, time.monotonic() - begun)
        self._turn.unpark_all()
        return True

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

    def _settle(self, answers: Answers, seconds: float) -> None:
        group, self._underway = self._underway, []
        if self._entries and not any(answers):
            self._commit()  # first, so that the lane works on while the outcomes are told
        self._tell(group, answers)
        self._metrics.committed(len(group), seconds)
        self._haste.noted([entry.append for entry in group], seconds)
        self._commit()

    def _tell(self, group: Group, answers: Answers) -> None:
        """Tell all outcomes in their order, those together that are stored."""
        stored: Group = []
        for entry, error in zip(group, answers, strict=True):
            if error is None:
                stored.append(entry)
                continue
            self._outcomes.stored(stored)
            stored = []
            self._outcomes.failed(entry, error)
        self._outcomes.stored(stored)


_STOPPING = "the host is stopping; this was not stored"
