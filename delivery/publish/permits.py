"""Batches that are not to be stored before somebody was asked, and those that have to wait behind them."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from delivery.batch import peek
from delivery.errors import HootError, MetadataUnavailable, ServiceStopping
from delivery.publish.pending import PendingPublish

Permit = Callable[[], Awaitable[object]]
"""Returns when a batch may be stored; raises a HootError when not."""
GoOn = Callable[[PendingPublish, HootError | None], None]
"""Hears of each batch when it may be stored, or with what it is refused."""
_Lane = tuple[str, int, int]
"""Queue, partition and producer: these batches are stored in order, so that none passes one that waits."""


class Permits:
    """For the trio thread. While nothing waits, a batch without a permit is not looked at."""

    def __init__(self, go_on: GoOn) -> None:
        self._go_on = go_on
        self._lanes: dict[_Lane, deque[tuple[PendingPublish, Permit | None]]] = {}

    def take(self, pending: PendingPublish, permit: Permit | None, nursery: trio.Nursery) -> bool:
        """Whether a batch has to wait; then `go_on` hears of it. Raises CorruptRecord for what is no batch."""
        if permit is None and not self._lanes:
            return False
        lane = _lane(pending)
        if (waiting := self._lanes.get(lane)) is not None:
            waiting.append((pending, permit))
        elif permit is not None:
            self._lanes[lane] = deque([(pending, permit)])
            nursery.start_soon(self._ask, lane)
        else:
            return False
        return True

    async def _ask(self, lane: _Lane) -> None:
        waiting = self._lanes[lane]
        try:
            while waiting:
                refusal = await _refusal(waiting[0][1])
                self._go_on(waiting.popleft()[0], refusal)
        finally:
            del self._lanes[lane]
            for pending, _ in waiting:
                self._go_on(pending, ServiceStopping("the host is stopping; nothing was stored"))


def _lane(pending: PendingPublish) -> _Lane:
    header = peek(pending.batch)
    return pending.queue, pending.partition, 0 if header is None else header.producer_id


async def _refusal(permit: Permit | None) -> HootError | None:
    """Nobody who answers is no refusal for good, and says nothing but that the batch is not stored."""
    if permit is None:
        return None
    try:
        await permit()
    except HootError as error:
        if error.retryable:
            return MetadataUnavailable(f"it cannot be told whether this may be stored: {error.message}")
        return error
    return None
