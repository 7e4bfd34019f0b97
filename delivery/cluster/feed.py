"""What is complete in a partition, and waking those who wait for more. Costs next to nothing while nobody waits."""

from __future__ import annotations

import trio

from delivery.errors import HootError


class PartitionFeed:
    """The watermark of one owned partition. For the trio thread only."""

    __slots__ = ("_moved", "error", "watermark")

    def __init__(self, watermark: int) -> None:
        """`watermark` is the last id that is complete when the partition is taken."""
        self.watermark = watermark
        self.error: HootError | None = None
        """Why the partition is no longer this host's, None while it is."""
        self._moved: trio.Event | None = None

    def advance(self, watermark: int) -> None:
        """Everything up to `watermark` is complete now: wake all who wait."""
        assert watermark > self.watermark, "a watermark only rises"
        self.watermark = watermark
        self._wake()

    def close(self, error: HootError) -> None:
        """The partition is lost: everyone who waits, now or later, gets `error`. The first one counts."""
        if self.error is None:
            self.error = error
            self._wake()

    async def wait_beyond(self, after: int) -> None:
        """Return as soon as something above `after` is complete. Raises the error that the feed was closed with.

        Any number may wait; cancelling one leaves the others alone. Closed wins: nothing is read from a lost partition.
        """
        while self.error is None and self.watermark <= after:
            if self._moved is None:
                self._moved = trio.Event()
            await self._moved.wait()
        if self.error is not None:
            raise again(self.error)

    def _wake(self) -> None:
        moved, self._moved = self._moved, None
        if moved is not None:
            moved.set()


def again(error: HootError) -> HootError:
    """A fresh copy to raise: one instance raised by several tasks would gather all their tracebacks."""
    return type(error)(error.message, address=error.address)
