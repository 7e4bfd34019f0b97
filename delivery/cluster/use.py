"""Who uses an owned partition, since when nobody does, and how it is emptied before it goes to another host."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import trio

from delivery.cluster.feed import PartitionFeed
from delivery.errors import DeadlineExceeded, again

COMMIT_SECONDS: Final = 5.0
"""How long a partition that is given away waits for what is being stored; it is kept when that takes longer."""
ANSWER_SECONDS: Final = 0.1
"""How long it waits before for subscribers to acknowledge what is out; what they have not by then comes twice."""

Tell = Callable[[], None]


class _Reading(AbstractContextManager[None]):
    """See Use.reading; a generator would take four times the memory, and a partition may have thousands of readers."""

    __slots__ = ("_use", "drain", "stop")

    def __init__(self, use: Use, drain: Tell, stop: Tell) -> None:
        self._use, self.drain, self.stop = use, drain, stop

    def __enter__(self) -> None:
        self._use.begin(self)

    def __exit__(self, *_: object) -> None:
        self._use.end(self)


class Use:
    """The use of one owned partition. For the trio thread only."""

    __slots__ = ("_changed", "_readers", "_storing", "draining", "leaving", "taken_at", "used_at")

    def __init__(self) -> None:
        self.taken_at = self.used_at = trio.current_time()
        self.draining = False
        """It is about to be given away: subscriptions come to an end, publishing goes on."""
        self.leaving = False
        """It is being given away: nothing new begins."""
        self._storing = 0
        self._readers: dict[_Reading, None] = {}
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def active(self) -> bool:
        """Whether a subscription is being served from it, or something is being stored in it, at this moment."""
        return bool(self._readers or self._storing)

    def touch(self) -> None:
        """Somebody asked for the partition."""
        self.used_at = trio.current_time()

    def storing(self) -> None:
        """A batch was stamped and is on its way into the store."""
        self._storing += 1

    def stored(self) -> None:
        """It arrived there; one that did not ends the partition, and with it this record."""
        self._storing -= 1
        if self.leaving:
            self._changed.unpark_all()

    def reading(self, drain: Tell, end: Tell) -> AbstractContextManager[None]:
        """As long as the context lasts, the partition has this reader.

        When the partition is given away, `drain` asks the reader to come to an end, and `end` makes it.
        """
        return _Reading(self, drain, end)

    def begin(self, reader: _Reading) -> None:
        """It reads from now on."""
        self._readers[reader] = None
        if self.draining:
            reader.drain()

    def end(self, reader: _Reading) -> None:
        """It reads no more."""
        del self._readers[reader]
        self.touch()
        self._changed.unpark_all()

    async def drain(self, answer_seconds: float) -> bool:
        """Ask the readers to come to an end; whether they have within `answer_seconds`. Publishing goes on."""
        if not self.draining:
            self.draining = True
            for reader in list(self._readers):
                reader.drain()
        with trio.move_on_after(answer_seconds):
            while self._readers:
                await self._changed.park()
        return not self._readers

    async def empty(self, feed: PartitionFeed) -> None:
        """Return when all that was being stored is, and no reader is left. From then on nothing begins until `reopen`.

        Readers that are left are ended. Raises DeadlineExceeded when the store takes longer than COMMIT_SECONDS, and
        the error of the partition's `feed` as soon as it is lost: of what was being stored nothing more is heard then.
        """
        self.leaving = True
        feed.follow(self._look)
        try:
            with trio.move_on_after(COMMIT_SECONDS):
                while self._storing and feed.error is None:
                    await self._changed.park()
        finally:
            feed.unfollow(self._look)
        if feed.error is not None:
            raise again(feed.error)
        if self._storing:
            raise DeadlineExceeded(f"the store did not take {self._storing} batches within {COMMIT_SECONDS:g} s")
        for reader in list(self._readers):
            reader.stop()
        while self._readers:
            await self._changed.park()

    def reopen(self) -> None:
        """The partition is lost by now, or stays: whoever waits is told."""
        self.draining = self.leaving = False

    def _look(self) -> None:
        self._changed.unpark_all()
