"""A partition that this host owns under one epoch, and reading it: from the tail cache, else from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import trio

from delivery import hop
from delivery.batch import Header
from delivery.batch.select import Refuses
from delivery.cluster.backlog import Backlog
from delivery.cluster.feed import PartitionFeed
from delivery.cluster.groups import unfolded
from delivery.cluster.load import Traffic
from delivery.cluster.use import Use
from delivery.errors import again
from delivery.ids import IdClock
from delivery.messaging.groups import but_markers, has_markers
from delivery.model import QueueSettings
from delivery.storage.base import Amount, Bounds, Chunk, MessageStore, PartitionKey, PartitionState
from delivery.storage.locating import locate

READS_AT_ONCE = 8
"""Store reads in threads; more would only compete for the disk and for the interpreter."""


class Tail(Protocol):
    """The newest batches in memory (storage.tail.TailCache), as used here; for the trio thread only."""

    def begin(self, key: PartitionKey, last_id: int) -> None:
        """Start anew with a partition that holds ids up to `last_id`."""

    def append(self, key: PartitionKey, header: Header, batch: bytes) -> None:
        """Add the newest batch of a partition."""

    def covers(self, key: PartitionKey, after: int) -> bool:
        """Whether everything above `after` is here, up to the newest batch."""

    def read(self, key: PartitionKey, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """The next whole batches above `after`; refused ones may be left out."""

    def drop(self, key: PartitionKey) -> None:
        """Forget a partition."""


class PartitionReader:
    """Reads any partition of this host. One for all of them, so that reads in threads are bounded together."""

    def __init__(self, store: MessageStore, tail: Tail) -> None:
        self._store, self._tail = store, tail
        self._limiter = trio.CapacityLimiter(READS_AT_ONCE)

    async def read(
        self, owned: OwnedPartition, after: int, bytes_max: int, refuses: Refuses | None = None
    ) -> Chunk | None:
        """The next whole batches with an id above `after`, at most `bytes_max` but at least one; None: nothing new.

        The tail cache holds a partition's newest batches without a gap and the store all of them, so whichever answers,
        the next read goes on right behind the chunk. What the store has confirmed a moment before the watermark moves
        may be in the chunk already; it is complete. Batches that are refused may be left out. Raises the partition's
        error when it is lost, and the store's.
        """
        if owned.feed.error is not None:
            raise again(owned.feed.error)
        if after >= owned.feed.watermark:
            return None
        if self._tail.covers(owned.key, after):
            return self._tail.read(owned.key, after, bytes_max, refuses)
        return await hop.run_sync(self._store.read, owned.key, after, bytes_max, refuses, limiter=self._limiter)

    def newest(self, owned: OwnedPartition, after: int, bytes_max: int) -> Chunk | None:
        """What `read` would give, if that is in memory."""
        if not owned.has_news(after) or owned.feed.error is not None or not self._tail.covers(owned.key, after):
            return None
        return self._tail.read(owned.key, after, bytes_max)

    async def bounds(self, owned: OwnedPartition) -> Bounds:
        """What the partition holds now."""
        return await hop.run_sync(self._store.bounds, owned.key, limiter=self._limiter)

    async def measure(self, owned: OwnedPartition, after: int, until: int) -> Amount:
        """What has an id above `after` and up to `until`."""
        return await hop.run_sync(self._store.measure, owned.key, after, until, limiter=self._limiter)

    async def locate(self, owned: OwnedPartition, after: int, until: int, counts: Sequence[int]) -> list[int]:
        """See `storage.locating.locate`."""
        measure = partial(self._store.measure, owned.key)
        return await hop.run_sync(locate, measure, after, until, counts, limiter=self._limiter)


class OwnedPartition:
    """One partition under one epoch, from its claim until it is lost. For the trio thread only.

    Losing it closes its feed: readers and waiters get the reason. The same partition owned again is another object.
    """

    __slots__ = (
        "_reader",
        "backlog",
        "epoch",
        "feed",
        "ids",
        "key",
        "sealed",
        "settings",
        "stored",
        "traffic",
        "use",
        "version",
    )

    def __init__(
        self, key: PartitionKey, settings: QueueSettings, epoch: int, version: int, state: PartitionState,
        reader: PartitionReader,
    ) -> None:  # fmt: skip
        self.key, self.epoch, self.version = key, epoch, version
        self.settings = settings
        """Follows the queue's record while the partition is owned."""
        self.ids = IdClock(state.last_id)
        self.stored = state.producers
        """What the store remembered of producers when the partition was opened."""
        self.sealed = state.sealed
        """What older epochs left, as of the opening; retention takes from it."""
        self.feed = PartitionFeed(state.last_id)
        self.use = Use()
        self.traffic = Traffic(self.use.taken_at)
        self.backlog = Backlog()
        self._reader = reader

    def __repr__(self) -> str:
        return f"<OwnedPartition {self.key} epoch {self.epoch}>"

    @property
    def watermark(self) -> int:
        """The last id that is complete."""
        return self.feed.watermark

    def check_room(self) -> None:
        """Raises QueueFull where publishers have to wait for a subscription."""
        if self.settings.has_backlog_limit:
            self.backlog.check(self.key, self.settings)

    def holds(self, subscription: str) -> bool:
        """Whether publishers wait for that subscription."""
        floor = self.backlog.floor
        return floor is not None and floor.subscription == subscription and self.backlog.is_full(self.settings)

    def source(self) -> OwnedPartition:
        """What a scanner reads from: this partition."""
        return self

    def reading(self, drain: Callable[[], None], end: Callable[[], None]) -> AbstractContextManager[None]:
        """See `Use.reading`."""
        return self.use.reading(drain, end)

    async def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """What readers see: as `read_stored`, with the messages of a group in place of the marker that shows them."""
        told = None if refuses is None else but_markers(refuses)
        chunk = await self._reader.read(self, after, bytes_max, told)
        if chunk is None or not has_markers(chunk.data, chunk.headers):
            return chunk
        return await unfolded(chunk, after, bytes_max, self.read_stored)

    async def read_stored(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See `PartitionReader.read`."""
        return await self._reader.read(self, after, bytes_max, refuses)

    def newest(self, after: int, bytes_max: int) -> Chunk | None:
        """What `read` would give, if that is in memory and takes no waiting."""
        chunk = self._reader.newest(self, after, bytes_max)
        return None if chunk is None or has_markers(chunk.data, chunk.headers) else chunk

    def has_news(self, after: int) -> bool:
        """Whether there is something above `after`, or the partition is lost, which `read` would raise."""
        return after < self.feed.watermark or self.feed.error is not None

    def follow(self, tell: Callable[[], None]) -> None:
        """See `PartitionFeed.follow`."""
        self.feed.follow(tell)

    def unfollow(self, tell: Callable[[], None]) -> None:
        """See `PartitionFeed.unfollow`."""
        self.feed.unfollow(tell)

    async def wait_beyond(self, after: int) -> None:
        """See `PartitionFeed.wait_beyond`."""
        await self.feed.wait_beyond(after)

    async def bounds(self) -> Bounds:
        """What the partition holds now."""
        return await self._reader.bounds(self)

    async def measure(self, after: int, until: int) -> Amount:
        """What has an id above `after` and up to `until`."""
        return await self._reader.measure(self, after, until)

    async def count(self, after: int, until: int) -> int:
        """How many messages have an id above `after` and up to `until`."""
        return (await self.measure(after, until)).messages

    async def locate(self, after: int, until: int, counts: Sequence[int]) -> list[int]:
        """For each of the rising `counts` the id up to which so many messages lie above `after`; `until` at most."""
        return await self._reader.locate(self, after, until, counts)
