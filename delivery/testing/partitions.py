"""The partitions of the engine in a test: the real writers, feeds and store in memory, without owners and threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delivery.cluster.backlog import lowest
from delivery.cluster.partition import OwnedPartition, PartitionReader
from delivery.errors import HootError, UnknownQueue
from delivery.metastore.catalog import Catalog
from delivery.model import check_partition
from delivery.publish.pending import PendingPublish, Stored
from delivery.publish.writer import PartitionWriter
from delivery.storage.base import NOTHING, PartitionKey
from delivery.storage.memory import MemoryStore
from delivery.storage.tail import TailCache

_NO_LIMIT: Final = 1 << 50
"""Of bytes: all that a test publishes stays in the tail, so that no read needs the store."""
_EPOCH: Final = 1


class LocalPartitions:
    """All partitions of all queues. For the loop's thread."""

    def __init__(self, catalog: Catalog, now_ms: Callable[[], int]) -> None:
        self._catalog, self._now_ms = catalog, now_ms
        self._store, self._tail = MemoryStore(bytes_max=_NO_LIMIT), TailCache(_NO_LIMIT)
        self._reader = PartitionReader(self._store, self._tail)
        self._writers: dict[tuple[str, int], PartitionWriter] = {}

    async def acquire(self, queue: str, partition: int, _generation: str = "") -> OwnedPartition:
        """See dispatch.delivery.Partitions."""
        return self.writer(queue, partition).owned

    def publish(self, queue: str, partition: int, batch: bytes) -> Stored:
        """Store a batch. Raises what a region host would refuse it with."""
        writer = self.writer(queue, partition)
        pending = PendingPublish(queue, partition, batch)
        entry = writer.take(pending)
        assert entry is not None, "batches have no producers here, so none comes twice"
        [error] = self._store.append([entry.append])
        if error is not None:
            raise error
        stored = writer.stored(entry)
        writer.announce()
        return stored

    def writer(self, queue: str, partition: int) -> PartitionWriter:
        """The writer of a partition, which is opened when it is needed. Raises UnknownQueue, UnknownPartition."""
        record = self._catalog.queue(queue)
        check_partition(partition, record.settings.partitions, queue)
        found = self._writers.get((queue, partition))
        if found is not None and found.owned.key.generation != record.generation:
            self.forget(queue, UnknownQueue(f"queue {queue!r} was deleted"))
            found = None
        if found is None:
            key = PartitionKey(queue, record.generation, partition)
            state = self._store.open(key, _EPOCH, record.settings)
            self._tail.begin(key, state.last_id)
            owned = OwnedPartition(key, record.settings, _EPOCH, 0, state, self._reader)
            found = self._writers[queue, partition] = PartitionWriter(owned, self._tail, self._now_ms)
        found.owned.settings = record.settings
        if record.settings.has_backlog_limit:
            self._measure(found.owned)
        return found

    def _measure(self, owned: OwnedPartition) -> None:
        """As a region host does now and then: what was not acknowledged when the test last settled."""
        places, partition = self._catalog.awaited(owned.key.queue), owned.key.partition
        floor = lowest({name: one[partition] for name, one in places.items() if partition in one})
        found = NOTHING if floor is None else self._store.measure(owned.key, floor.position, owned.watermark)
        owned.backlog.measured(owned.backlog.mark(), floor, found)

    def forget(self, queue: str, why: HootError) -> None:
        """A queue was deleted: whoever reads it is told."""
        for place in [place for place in self._writers if place[0] == queue]:
            owned = self._writers.pop(place).owned
            owned.feed.close(why)
            self._tail.drop(owned.key)
            self._store.release(owned.key)
