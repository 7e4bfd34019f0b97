"""A message store whose partitions reach back into their archives: whoever reads does not see the border.

What was archived stays in the store until retention drops it, so the two overlap: a read goes to the archive below the
first id of the store, and to the store from there on. Batches are the same in both, and whoever reads goes on behind
the last id of a chunk, wherever that came from. Retention comes only after `refresh` has told what is archived; a read
in the midst of it sees that the border has moved, and begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from delivery.batch.select import Refuses
from delivery.errors import HootError
from delivery.ids import ID_MAX
from delivery.model import ArchivedRange, QueueSettings
from delivery.storage.archive.partition import ArchivedPartition, Files, same
from delivery.storage.base import NOTHING, Amount, Append, Bounds, Chunk, MessageStore, PartitionKey, PartitionState

Ranges = Callable[[Sequence[PartitionKey]], Sequence[tuple[ArchivedRange, ...] | HootError]]
"""Says what is archived of partitions, by their records; blocking."""


class ArchivedStore:
    """A MessageStore in front of another one. Reading what is archived raises ArchiveUnreadable where it cannot be."""

    def __init__(self, store: MessageStore, ranges: Ranges) -> None:
        self._store, self._ranges = store, ranges
        self._files = Files()
        self._archives: dict[PartitionKey, ArchivedPartition] = {}

    def open(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> PartitionState:
        """See `MessageStore.open`. Raises what reading the records does, the partition being closed then."""
        state = self._store.open(key, epoch, settings)
        self._archives.pop(key, None)
        if settings.archive is None:
            return state
        try:
            # Not before: only now no earlier owner drops anything more of what it knew to be archived.
            self.refresh([(key, settings.archive)])
        except BaseException:
            self._store.release(key)
            raise
        archive = self._archives.get(key)
        if archive is None or archive.until <= state.last_id:
            return state
        # The store has lost its end, as that of a queue without fsync may: no id in the archive is given out again.
        return msgspec.structs.replace(state, last_id=archive.until)

    def refresh(self, wanted: Sequence[tuple[PartitionKey, str]]) -> None:
        """Learn what is archived of partitions now, each in its folder. Raises what reading the records does."""
        found = self._ranges([key for key, _ in wanted])
        for (key, folder), ranges in zip(wanted, found, strict=True):
            if isinstance(ranges, HootError):
                raise ranges
            if ranges and not same(self._archives.get(key), Path(folder), ranges):
                self._archives[key] = ArchivedPartition(self._files, Path(folder), key, ranges)

    def append_at_once(self, item: Append, /) -> list[HootError | None] | None:
        """See `MessageStore.append_at_once`."""
        return self._store.append_at_once(item)

    def append(self, group: Sequence[Append]) -> list[HootError | None]:
        """See `MessageStore.append`."""
        return self._store.append(group)

    def read(self, key: PartitionKey, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See `MessageStore.read`."""
        while True:
            archive = self._archives.get(key)
            behind = archive is not None and after < archive.until
            first_id = self._first_id(key) if behind else 0
            if archive is not None and after + 1 < first_id:
                chunk = archive.read(after, first_id, bytes_max, refuses)
                if chunk is not None:
                    return chunk
            chunk = self._store.read(key, after, bytes_max, refuses)
            if self._archives.get(key) is archive and (not behind or self._first_id(key) == first_id):
                return chunk

    def bounds(self, key: PartitionKey) -> Bounds:
        """See `MessageStore.bounds`; of what is in both, the archive's copy does not count."""
        held, archive = self._store.bounds(key), self._archives.get(key)
        first_id = held.first_id or held.last_id + 1
        if archive is None or archive.first_id >= first_id:
            return held
        messages, size = archive.below(first_id)
        last_id = max(held.last_id, archive.until)
        return Bounds(archive.first_id, last_id, held.messages + messages, held.bytes + size)

    def measure(self, key: PartitionKey, after: int, until: int) -> Amount:
        """See `MessageStore.measure`."""
        while True:
            archive = self._archives.get(key)
            behind = archive is not None and after < archive.until
            first_id = self._first_id(key) if behind else 0
            archived = archive.measure(after, min(until, first_id - 1)) if archive is not None and behind else NOTHING
            held = self._store.measure(key, max(after, first_id - 1), until)
            if self._archives.get(key) is archive and (not behind or self._first_id(key) == first_id):
                return archived + held

    def trim(self, key: PartitionKey, settings: QueueSettings, now_ms: int, until: int = ID_MAX) -> int:
        """See `MessageStore.trim`; where the queue is to be archived first, nothing that is not archived goes."""
        if settings.archive_first:
            archive = self._archives.get(key)
            until = min(until, 0 if archive is None else archive.until)
        return self._store.trim(key, settings, now_ms, until)

    def prepare_release(self, key: PartitionKey) -> None:
        """See `MessageStore.prepare_release`."""
        self._store.prepare_release(key)

    def release(self, key: PartitionKey) -> None:
        """See `MessageStore.release`."""
        self._store.release(key)
        self._archives.pop(key, None)

    def queues(self) -> list[tuple[str, str]]:
        """See `MessageStore.queues`."""
        return self._store.queues()

    def delete(self, queue: str, generation: str) -> None:
        """See `MessageStore.delete`; the archive's files stay."""
        self._store.delete(queue, generation)

    def close(self) -> None:
        """See `MessageStore.close`."""
        self._store.close()

    def _first_id(self, key: PartitionKey) -> int:
        """The first id that the store itself has, or would give."""
        held = self._store.bounds(key)
        return held.first_id or held.last_id + 1
