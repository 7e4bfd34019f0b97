"""What the stores that outlive a process share: the partitions open here, each with a lock for those who change it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Generic, Protocol, TypeVar

from delivery.batch.select import Refuses
from delivery.errors import HootError, InvalidRequest, StorageUnavailable
from delivery.ids import ID_MAX
from delivery.model import PARTITIONS_MAX, QueueSettings
from delivery.storage.base import Amount, Append, Bounds, Chunk, PartitionKey


class Opened(Protocol):
    """A partition under one epoch."""

    epoch: int

    def read(self, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See `MessageStore.read`; by any thread."""

    def bounds(self) -> Bounds:
        """See `MessageStore.bounds`; by any thread."""

    def measure(self, after: int, until: int) -> Amount:
        """See `MessageStore.measure`; by any thread."""

    def trim(self, settings: QueueSettings, now_ms: int, until: int) -> int:
        """See `MessageStore.trim`; by one thread at a time."""


_Kind = TypeVar("_Kind", bound=Opened)


class OpenedPartitions(ABC, Generic[_Kind]):
    """The calls of a `MessageStore` that are those of one open partition, and the locks."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, _Kind] = {}
        self._locks: dict[PartitionKey, Lock] = {}
        self._closed = False

    def append(self, group: Sequence[Append]) -> list[HootError | None]:
        """See `MessageStore.append`."""
        with ExitStack() as locks:
            # One order for all groups, so that two groups never wait for each other.
            for key in sorted({item.key for item in group}):
                locks.enter_context(self._lock(key))
            return self._commit(group, self._partitions)

    def read(self, key: PartitionKey, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """See `MessageStore.read`."""
        return self._partition(key).read(after, bytes_max, refuses)

    def bounds(self, key: PartitionKey) -> Bounds:
        """See `MessageStore.bounds`."""
        return self._partition(key).bounds()

    def measure(self, key: PartitionKey, after: int, until: int) -> Amount:
        """See `MessageStore.measure`."""
        return self._partition(key).measure(after, until)

    def trim(self, key: PartitionKey, settings: QueueSettings, now_ms: int, until: int = ID_MAX) -> int:
        """See `MessageStore.trim`. Raises Fenced when a newer epoch owns the partition."""
        with self._lock(key):
            return self._partition(key).trim(settings, now_ms, until)

    def release(self, key: PartitionKey) -> None:
        """See `MessageStore.release`."""
        with self._lock(key):
            self._leave(key)

    def close(self) -> None:
        """See `MessageStore.close`."""
        self._closed = True
        for key in list(self._partitions):
            self.release(key)

    @abstractmethod
    def _commit(self, group: Sequence[Append], partitions: Mapping[PartitionKey, _Kind]) -> list[HootError | None]:
        """Store a group whose partitions' locks are held."""

    @abstractmethod
    def _leave(self, key: PartitionKey) -> None:
        """Take a partition out and close it, its lock being held; fine for one that is not open."""

    def _check_open(self, key: PartitionKey, epoch: int, epoch_max: int) -> None:
        """Raise InvalidRequest for what can be no partition under an epoch, StorageUnavailable after `close`."""
        if not 0 <= key.partition < PARTITIONS_MAX or not 1 <= epoch <= epoch_max:
            raise InvalidRequest(f"no partition {key} with epoch {epoch} can be")
        if self._closed:
            raise StorageUnavailable("the message store is closed")

    def _lock(self, key: PartitionKey) -> Lock:
        return self._locks.setdefault(key, Lock())

    def _partition(self, key: PartitionKey) -> _Kind:
        partition = self._partitions.get(key)
        if partition is None:
            raise StorageUnavailable(f"{key} is not open here")
        return partition
