"""What is complete in a partition, and telling those who want more. Costs next to nothing while nobody does."""

from __future__ import annotations

from collections.abc import Callable

import trio

from delivery.errors import HootError, again


class PartitionFeed:
    """The watermark of one owned partition. For the trio thread only."""

    __slots__ = ("_followers", "_moved", "error", "watermark")

    def __init__(self, watermark: int) -> None:
        """`watermark` is the last id that is complete when the partition is taken."""
        self.watermark = watermark
        self.error: HootError | None = None
        """Why the partition is no longer this host's, None while it is."""
        self._moved: trio.Event | None = None
        self._followers: dict[Callable[[], None], None] = {}

    def follow(self, tell: Callable[[], None]) -> None:
        """Call `tell` whenever the watermark has moved or the partition is lost, in the turn of whoever did it.

        It must not raise.
        """
        self._followers[tell] = None

    def unfollow(self, tell: Callable[[], None]) -> None:
        """Call it no more."""
        self._followers.pop(tell, None)

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
        for tell in list(self._followers):
            tell()
