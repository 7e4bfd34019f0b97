"""Looking at the time: what is not acknowledged by hand in time, and callbacks that take longer than they may.

One task waits for the first moment at which something may be late, and has that looked after by a thread that calls
listeners. For what is acknowledged by hand that is the strand of the partition: no callback of it runs meanwhile, so
that one that does prolongs its limit by itself. For a callback that holds its strand it is another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from delivery import logs
from subscriber.manual import Unacknowledged
from subscriber.strands import Job
from subscriber.taking_back import TakingBack

if TYPE_CHECKING:
    from subscriber.attachment import Attachment
    from subscriber.service import ListenerService

REST_SECONDS: Final = 0.02
"""Between two looks that nothing but the time asks for."""
AGAIN_SECONDS: Final = 1.0
"""Until the next look, when nothing could be done by the last one."""

log = logs.logger(__name__)


class _Watched(NamedTuple):
    """Something that may be late."""

    what: Hashable
    due: float
    submit: Callable[[Job], None]
    """Has it looked after where that may be done."""
    work: Job


class Lapsing:
    """Of one started subscriber. `run` owns the task."""

    def __init__(self, service: ListenerService) -> None:
        self._service = service
        self._wake_at = math.inf
        self._rung = trio.Event()
        self._looked_after: set[Hashable] = set()
        """For which a job waits or runs."""

    def unacknowledged(self) -> Unacknowledged:
        """What is not acknowledged of a partition, at which this looks."""
        return Unacknowledged(self._service.dispatcher.clock, self.note)

    def note(self, due: float) -> None:
        """Something may be late at that time, or is now. From any thread."""
        if due < self._wake_at:
            self.look_soon()

    def look_soon(self) -> None:
        """Look at everything again, as limits may have changed. From any thread."""
        self._service.dispatcher.post(self._ring)

    async def run(self) -> None:
        """Look whenever something is due, until cancelled."""
        clock = self._service.dispatcher.clock
        while True:
            self._wake_at = math.inf  # before looking: whatever is noted meanwhile rings
            self._rung = trio.Event()
            self._wake_at = due = self._look(clock())
            with trio.move_on_after(max(due - clock(), REST_SECONDS)):
                await self._rung.wait()

    def _ring(self) -> None:
        self._rung.set()

    def _look(self, now: float) -> float:
        """Have everything looked after that is due; when the next is."""
        following = math.inf
        for one in () if self._service.stopping else self._found():
            if one.what in self._looked_after:
                continue  # which looks again at its end
            if one.due > now:
                following = min(following, one.due)
                continue
            self._looked_after.add(one.what)
            try:
                one.submit(partial(self._look_after, one))
            except RuntimeError as error:  # the system has no thread for it now
                log.warning("nobody can look after what is late: %s", error)
                self._looked_after.discard(one.what)
                following = now + AGAIN_SECONDS
        return following

    def _found(self) -> Iterator[_Watched]:
        for attachment in self._service.attached.values():
            beside = partial(self._service.dispatcher.submit, attachment)
            for abreast in tuple(attachment.side_by_side.values()):
                yield _Watched(abreast, abreast.due(), beside, abreast.fail_late)
            limit = attachment.record.retry.ack_timeout_seconds
            for partition, unacknowledged in tuple(attachment.unacknowledged.items()):
                strands = attachment.strands
                there = beside if strands is None else partial(strands.submit, partition)
                work = partial(self._take_back, attachment, partition)
                yield _Watched(unacknowledged, unacknowledged.due(limit), there, work)

    def _look_after(self, one: _Watched) -> None:
        try:
            if not self._service.stopping:
                one.work()
        finally:
            self._looked_after.discard(one.what)
            self.look_soon()

    def _take_back(self, attachment: Attachment, partition: int) -> None:
        service, retry = self._service, attachment.record.retry
        unacknowledged, inbox = attachment.unacknowledged[partition], attachment.inbox.partition(partition)
        deciding = TakingBack(unacknowledged, inbox, service.answer, by_key=retry.order == "key")
        limit = retry.ack_timeout_seconds
        with unacknowledged.lock:
            found = deciding.take_back(unacknowledged.lapsed(limit), limit)
        for one in found:  # without the lock: this calls the application
            service.tell_failed(one.push, one.unhandled, one.error)
