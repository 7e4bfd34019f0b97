"""The one writer of an owned partition: it admits batches in the order of their arrival and gives them their ids."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from delivery.batch import Header, stamp
from delivery.cluster.partition import OwnedPartition, Tail
from delivery.errors import InvalidRequest, OutOfPlace, QueueClosed
from delivery.publish.admission import admit, admit_copied
from delivery.publish.pending import PendingPublish, Stored
from delivery.publish.producers import Producers
from delivery.storage.base import Append, StoredBatch

Clock = Callable[[], int]


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Entry(msgspec.Struct, frozen=True):
    """A stamped batch on its way to the store, and who waits for it."""

    append: Append
    pending: PendingPublish
    writer: PartitionWriter


class PartitionWriter:
    """Lives as long as its OwnedPartition. For the trio thread.

    Once a batch is stamped its ids are taken: if it cannot be stored, the partition is lost and so is this writer.
    """

    def __init__(self, owned: OwnedPartition, tail: Tail, now_ms: Clock = wall_clock_ms) -> None:
        self.owned = owned
        self._tail, self._now_ms = tail, now_ms
        self._producers: Producers[PendingPublish] = Producers(owned.stored)
        self._complete = 0
        """The last id that was stored."""

    def take(self, pending: PendingPublish) -> Entry | None:
        """Stamp the batch, ready to be stored; None when it has ended already or follows one under way.

        Raises QueueClosed, QueueFull and what `admission.admit`, `Producers.find` and `IdClock.take` raise; then
        nothing has changed.
        """
        if pending.after is not None:
            return self._take_copied(pending, pending.after)
        owned = self.owned
        header = admit(pending.batch, owned.key.partition, owned.settings, aside=pending.aside)
        producer, sequence = header.producer_id, header.producer_sequence
        if producer and (earlier := self._producers.find(producer, sequence, header.payload_crc)) is not None:
            self._repeat(pending, earlier)
            return None
        if owned.settings.closed:
            raise QueueClosed(f"queue {owned.key.queue!r} is closed; nothing was stored")
        if not pending.aside:
            owned.check_room()
        return self._stamped(pending, header, owned.ids.take(header.span, self._now_ms()))

    def _take_copied(self, pending: PendingPublish, after: int) -> Entry:
        """A batch of another queue, behind the one before it there: so none is left out, and none comes twice.

        Raises InvalidRequest when the queue is open, OutOfPlace when another batch is the last, and as `take`.
        """
        owned = self.owned
        if not owned.settings.closed:
            raise InvalidRequest(f"queue {owned.key.queue!r} is open: only a closed one takes what others have stored")
        header = admit_copied(pending.batch, owned.key.partition)
        if after != owned.ids.last:
            raise OutOfPlace(f"{owned.key} ends with {owned.ids.last}, not {after}: go on from there")
        owned.ids.follow(header.base_id, header.count, self._now_ms())
        return self._stamped(pending, header, header.base_id)

    def _stamped(self, pending: PendingPublish, header: Header, base_id: int) -> Entry:
        """Its ids are taken."""
        owned = self.owned
        stamped, batch = stamp(header, pending.batch, base_id, owned.epoch)
        if header.producer_id:
            self._producers.take(header.producer_id, header.producer_sequence, pending, header.payload_crc)
        pending.batch = b""  # the stamped copy is what counts from here on
        append = Append(owned.key, owned.epoch, stamped, batch, owned.settings.durability)
        owned.use.storing()
        owned.backlog.take(header.span, len(batch))
        return Entry(append, pending, self)

    def stored(self, entry: Entry) -> Stored:
        """The batch is durable: readers may have it from `announce` on, unless the partition was lost meanwhile."""
        header, owned = entry.append.header, self.owned
        owned.use.stored()
        owned.backlog.stored(header.span, len(entry.append.batch))
        owned.traffic.add(header.count, len(entry.append.batch))
        if header.producer_id:
            batch = (header.producer_id, header.producer_sequence, header.base_id, header.count, header.payload_crc)
            self._producers.stored(StoredBatch(*batch))
        if owned.feed.error is None:
            self._tail.append(entry.append.key, header, entry.append.batch)
            self._complete = header.last_id
        return Stored(header.base_id, header.count, entry.append.durability)

    def announce(self) -> None:
        """Tell the readers of what was stored since the last time."""
        feed = self.owned.feed
        if feed.error is None and self._complete > feed.watermark:
            feed.advance(self._complete)

    def _repeat(self, pending: PendingPublish, earlier: StoredBatch | PendingPublish) -> None:
        if isinstance(earlier, StoredBatch):
            durability = self.owned.settings.durability
            pending.give(Stored(earlier.base_id, earlier.count, durability, duplicate=True))
        else:
            pending.follow(earlier)
