"""The message store in memory: the reference of the contract, and what keeps queues of durability `memory`.

Stores that share a `MemoryDisk` stand for hosts that share a disk: a store that opens a partition under a newer epoch
fences the others. Nothing survives the process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from threading import RLock
from typing import Final

from delivery.batch import Header
from delivery.batch.select import Refuses
from delivery.errors import Fenced, HootError, StorageUnavailable
from delivery.ids import ID_MAX
from delivery.model import QueueSettings
from delivery.storage.base import NOTHING, Amount, Append, Bounds, Chunk, PartitionKey, PartitionState
from delivery.storage.order import assert_in_order
from delivery.storage.producers import Producers
from delivery.storage.retention import expired
from delivery.storage.sealed import EpochIds, by_epoch

BYTES_MAX: Final = 64 * 1024 * 1024
"""What a partition holds at most where its queue states no retention; the oldest batches go first."""


class MemoryPartition:
    """The batches of one partition. Thread-safe. Where `until` is given, nothing above that id is seen."""

    def __init__(self, last_id: int = 0) -> None:
        """`last_id` is the highest id given out before."""
        self.last_id = last_id
        self.producers = Producers()
        self.epoch = 0
        self._batches: list[tuple[Header, bytes]] = []
        self._last_ids: list[int] = []
        self._bytes = 0
        self._lock = RLock()

    def add(self, batches: Sequence[Append], bytes_max: int) -> None:
        """Store batches, then drop the oldest while there are more than `bytes_max` bytes."""
        with self._lock:
            assert_in_order(batches, self.last_id)
            for item in batches:
                self._batches.append((item.header, item.batch))
                self._last_ids.append(item.header.last_id)
                self._bytes += item.header.length
                self.producers.note(item.header)
                self.last_id = item.header.last_id
            self._drop(self._excess(bytes_max))

    def read(self, after: int, bytes_max: int, until: int) -> Chunk | None:
        """The next whole batches above `after`."""
        with self._lock:
            start = bisect_right(self._last_ids, after)
            stop, size = start, 0
            while stop < self._end(until) and (stop == start or size + self._batches[stop][0].length <= bytes_max):
                size += self._batches[stop][0].length
                stop += 1
            taken = self._batches[start:stop]
        if not taken:
            return None
        data = taken[0][1] if len(taken) == 1 else b"".join(batch for _, batch in taken)
        return Chunk(data, tuple(header for header, _ in taken))

    def bounds(self, until: int) -> Bounds:
        """What is held."""
        with self._lock:
            headers = [header for header, _ in self._batches[: self._end(until)]]
        return Bounds(
            first_id=headers[0].base_id if headers else 0,
            last_id=headers[-1].last_id if headers else until,
            messages=sum(header.shown for header in headers),
            bytes=sum(header.length for header in headers),
        )

    def sealed(self, epoch: int) -> tuple[EpochIds, ...]:
        """What epochs below `epoch` left."""
        with self._lock:
            return by_epoch([(one.epoch, one.base_id, one.last_id) for one, _ in self._batches], epoch)

    def measure(self, after: int, until: int) -> Amount:
        """What has an id above `after` and up to `until`."""
        with self._lock:
            return self._rank(until) - self._rank(after) if until > after else NOTHING

    def trim(self, settings: QueueSettings, now_ms: int, until: int = ID_MAX) -> int:
        """Drop the oldest batches that `settings` no longer keep; the bytes freed. A batch is a segment here."""
        with self._lock:
            sizes = [(header.length, header.last_id) for header, _ in self._batches]
            return self._drop(expired(sizes, self._bytes, settings, now_ms, until))

    def _end(self, until: int) -> int:
        return bisect_right(self._last_ids, until)

    def _rank(self, message_id: int) -> Amount:
        place = bisect_right(self._last_ids, message_id)
        below = [header for header, _ in self._batches[:place]]
        whole = Amount(sum(header.shown for header in below), sum(header.length for header in below))
        if place == len(self._batches):
            return whole
        cut = self._batches[place][0]
        return whole + Amount(cut.shown_up_to(message_id), cut.length_up_to(message_id))

    def _excess(self, bytes_max: int) -> int:
        """How many of the oldest batches are too many for `bytes_max`; the newest one always stays."""
        count, size = 0, self._bytes
        while size > bytes_max and count < len(self._batches) - 1:
            size -= self._batches[count][0].length
            count += 1
        return count

    def _drop(self, count: int) -> int:
        """Forget the `count` oldest batches; the bytes freed."""
        freed = sum(header.length for header, _ in self._batches[:count])
        self._bytes -= freed
        del self._batches[:count], self._last_ids[:count]
        return freed


class MemoryDisk:
    """What stores in memory may share."""

    def __init__(self) -> None:
        self.partitions: dict[PartitionKey, MemoryPartition] = {}
        self.lock = RLock()


class _View:
    """A partition as one store sees it: under its epoch and up to what it knows to be stored."""

    def __init__(self, partition: MemoryPartition, epoch: int, settings: QueueSettings) -> None:
        self.partition, self.epoch, self.settings = partition, epoch, settings
        self.last_id = partition.last_id


class MemoryStore:
    """A `MessageStore` in memory. Durability is the same whatever a queue asks for: that of the process."""

    def __init__(self, disk: MemoryDisk | None = None, *, bytes_max: int = BYTES_MAX) -> None:
        """`bytes_max` bounds each partition whose queue states no retention."""
        self._disk = MemoryDisk() if disk is None else disk
        self._bytes_max = bytes_max
        self._views: dict[PartitionKey, _View] = {}
        self._closed = False

    def open(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> PartitionState:
        """See `MessageStore.open`."""
        with self._disk.lock:
            if self._closed:
                raise StorageUnavailable("the message store is closed")
            partition = self._disk.partitions.setdefault(key, MemoryPartition())
            if partition.epoch > epoch:
                raise Fenced(f"epoch {partition.epoch} has {key} already; {epoch} is too old")
            partition.epoch = epoch
            self._views[key] = _View(partition, epoch, settings)
            return PartitionState(partition.last_id, partition.producers.snapshot(), partition.sealed(epoch))

    def append(self, group: Sequence[Append]) -> list[HootError | None]:
        """See `MessageStore.append`."""
        failed: dict[PartitionKey, HootError] = {}
        answers: list[HootError | None] = []
        for item in group:
            if item.key not in failed:
                try:
                    self._add(item)
                except HootError as error:
                    failed[item.key] = error
            answers.append(failed.get(item.key))
        return answers

    def append_at_once(self, item: Append, /) -> list[HootError | None] | None:
        """See `MessageStore.append_at_once`; never in anybody's way."""
        return self.append([item])

    def read(self, key: PartitionKey, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:  # noqa: ARG002
        """See `MessageStore.read`; there is nothing to be gained by leaving batches out."""
        view = self._view(key)
        return view.partition.read(after, bytes_max, view.last_id)

    def bounds(self, key: PartitionKey) -> Bounds:
        """See `MessageStore.bounds`."""
        view = self._view(key)
        return view.partition.bounds(view.last_id)

    def measure(self, key: PartitionKey, after: int, until: int) -> Amount:
        """See `MessageStore.measure`."""
        view = self._view(key)
        return view.partition.measure(after, min(until, view.last_id))

    def trim(self, key: PartitionKey, settings: QueueSettings, now_ms: int, until: int = ID_MAX) -> int:
        """See `MessageStore.trim`. Raises Fenced when a newer epoch owns the partition."""
        with self._disk.lock:
            view = self._view(key)
            _check_standing(view, key)
            view.settings = settings
            return view.partition.trim(settings, now_ms, until)

    def prepare_release(self, key: PartitionKey) -> None:
        """See `MessageStore.prepare_release`. Opening takes no time here."""

    def release(self, key: PartitionKey) -> None:
        """See `MessageStore.release`."""
        self._views.pop(key, None)

    def queues(self) -> list[tuple[str, str]]:
        """See `MessageStore.queues`."""
        with self._disk.lock:
            return sorted({(key.queue, key.generation) for key in self._disk.partitions})

    def delete(self, queue: str, generation: str) -> None:
        """See `MessageStore.delete`."""
        with self._disk.lock:
            for key in [key for key in self._disk.partitions if (key.queue, key.generation) == (queue, generation)]:
                self._disk.partitions.pop(key).epoch = 2**63 - 1
                self._views.pop(key, None)

    def close(self) -> None:
        """See `MessageStore.close`."""
        self._closed = True
        self._views.clear()

    def _add(self, item: Append) -> None:
        with self._disk.lock:
            view = self._view(item.key)
            _check_standing(view, item.key)
            if item.epoch != view.epoch:
                raise Fenced(f"{item.key} is open under epoch {view.epoch}, not {item.epoch}")
            view.partition.add([item], view.settings.retention_bytes or self._bytes_max)
            view.last_id = view.partition.last_id

    def _view(self, key: PartitionKey) -> _View:
        view = self._views.get(key)
        if view is None:
            raise StorageUnavailable(f"{key} is not open here")
        return view


def _check_standing(view: _View, key: PartitionKey) -> None:
    if view.partition.epoch != view.epoch:
        raise Fenced(f"{key} has a newer epoch than {view.epoch}: {view.partition.epoch}")
