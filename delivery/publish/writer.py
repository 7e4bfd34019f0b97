"""The one writer of an owned partition: it admits batches in the order of their arrival and gives them their ids."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from delivery.batch import stamp
from delivery.cluster.partition import OwnedPartition, Tail
from delivery.publish.admission import admit
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

    def take(self, pending: PendingPublish) -> Entry | None:
        """Stamp the batch, ready to be stored; None when it has ended already or follows one under way.

        Raises what `admission.admit`, `Producers.find` and `IdClock.take` raise; then nothing has changed.
        """
        owned = self.owned
        header = admit(pending.batch, owned.key.partition, owned.settings, aside=pending.aside)
        producer, sequence = header.producer_id, header.producer_sequence
        if producer and (earlier := self._producers.find(producer, sequence, header.payload_crc)) is not None:
            self._repeat(pending, earlier)
            return None
        stamped, batch = stamp(header, pending.batch, owned.ids.take(header.count, self._now_ms()), owned.epoch)
        if producer:
            self._producers.take(producer, sequence, pending, header.payload_crc)
        pending.batch = b""  # the stamped copy is what counts from here on
        append = Append(owned.key, owned.epoch, stamped, batch, owned.settings.durability)
        owned.use.storing()
        return Entry(append, pending, self)

    def stored(self, entry: Entry) -> Stored:
        """The batch is durable: readers may have it, unless the partition was lost in the meantime."""
        header, owned = entry.append.header, self.owned
        owned.use.stored()
        owned.traffic.add(header.count, len(entry.append.batch))
        if header.producer_id:
            batch = (header.producer_id, header.producer_sequence, header.base_id, header.count, header.payload_crc)
            self._producers.stored(StoredBatch(*batch))
        if owned.feed.error is None:
            self._tail.append(entry.append.key, header, entry.append.batch)
            owned.feed.advance(header.last_id)
        return Stored(header.base_id, header.count, entry.append.durability)

    def _repeat(self, pending: PendingPublish, earlier: StoredBatch | PendingPublish) -> None:
        if isinstance(earlier, StoredBatch):
            durability = self.owned.settings.durability
            pending.give(Stored(earlier.base_id, earlier.count, durability, duplicate=True))
        else:
            pending.follow(earlier)
