"""The embedded log as a message store: group commit over partitions, one thread per partition at a time."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

from delivery.errors import Fenced, HootError, StorageUnavailable
from delivery.model import QueueSettings
from delivery.storage.base import Append, PartitionKey, PartitionState
from delivery.storage.homes import OwnRegister, Register, in_log, settle_in_log
from delivery.storage.log.disk import Disk, locked, refusals
from delivery.storage.log.epochs import NOBODY, Epochs
from delivery.storage.log.folder import DataFolder
from delivery.storage.log.group import commit, commit_alone
from delivery.storage.log.partition import Partition, Tools
from delivery.storage.log.segment import ClosedFiles, find_segments
from delivery.storage.log.volatile import VolatilePartition
from delivery.storage.opened import OpenedPartitions

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""A segment that has reached this is closed before the next group; a group is never split."""


EPOCH_MAX: Final = 10**10 - 1
"""As many digits as the names of segments have for it."""
_log = logging.getLogger(__name__)


class SegmentedLog(OpenedPartitions[Partition | VolatilePartition]):
    """A `MessageStore` in a folder that the hosts of one machine share. Close it when done.

    Open files: one per partition that was appended to since it was opened, two per queue, and at most 256 closed
    segments. A queue of durability `memory` is kept in this process; its data is gone when it is released. Where a
    queue of that durability has segments already it goes on appending to them as `os`, so that nothing stored is lost.
    """

    def __init__(
        self, data_dir: Path, *, segment_bytes: int = SEGMENT_BYTES, register: Register | None = None,
        disk: Disk | None = None,
    ) -> None:  # fmt: skip
        """Make or check the data folder. `disk` is the seam for tests.

        The `register` tells which queues are in another store; without one this store knows of its own alone.
        Raises LayoutMismatch, DataFolderError.
        """
        super().__init__()
        self._register = OwnRegister() if register is None else register
        disk = disk or Disk()
        self._data = DataFolder(data_dir, disk)
        self._tools = Tools(self._data, disk, ClosedFiles(), segment_bytes)
        self._epochs: WeakValueDictionary[Path, Epochs] = WeakValueDictionary()
        self._epochs_lock = Lock()

    def open(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> PartitionState:
        """See `MessageStore.open`. Raises what a Register does, too."""
        with self._lock(key):
            self._check_open(key, epoch, EPOCH_MAX)
            older = self._partitions.get(key)
            if older is not None:
                if older.epoch > epoch:
                    raise Fenced(f"epoch {older.epoch} has {key} already; {epoch} is too old")
                older.close()
                del self._partitions[key]
            partition = self._take(key, epoch, settings)
            if isinstance(partition, VolatilePartition) and isinstance(older, VolatilePartition):
                partition.inherit(older)
            self._partitions[key] = partition
            return partition.state()

    def append_at_once(self, item: Append, /) -> list[HootError | None] | None:
        """See `MessageStore.append_at_once`."""
        lock = self._lock(item.key)
        if not lock.acquire(blocking=False):
            return None
        try:
            partition = self._partitions.get(item.key)
            if partition is None or partition.epoch != item.epoch or not partition.is_quick:
                return None
            return [commit_alone(item, partition)]
        finally:
            lock.release()

    def prepare_release(self, key: PartitionKey) -> None:
        """See `MessageStore.prepare_release`: who opens the partition reads all of the segment that was left open."""
        partition = self._partitions.get(key)
        if isinstance(partition, Partition):
            partition.sync_ahead()
            with self._lock(key):
                partition.shorten_tail()

    def queues(self) -> list[tuple[str, str]]:
        """See `MessageStore.queues`."""
        return self._data.queues()

    def usage(self, queue: str, generation: str) -> tuple[int, int | None]:
        """What a queue takes on the disk in bytes, and when something was written to it last, in ms since 1970."""
        return self._data.usage(queue, generation)

    def delete(self, queue: str, generation: str) -> None:
        """See `MessageStore.delete`. Owners of its partitions elsewhere are fenced first."""
        for key in [key for key in list(self._partitions) if (key.queue, key.generation) == (queue, generation)]:
            self.release(key)
        folder = self._data.queue(queue, generation)
        if folder.exists():
            with refusals(f"delete {folder.name}"):
                epochs = self._epochs_of(folder)
                for place in [place for place in folder.iterdir() if place.name.isdecimal()]:
                    with locked(place / "lock"):
                        epochs.raise_to(int(place.name), NOBODY)
            self._data.remove(folder)

    def _commit(
        self, group: Sequence[Append], partitions: Mapping[PartitionKey, Partition | VolatilePartition]
    ) -> list[HootError | None]:
        return commit(group, partitions)

    def _leave(self, key: PartitionKey) -> None:
        partition = self._partitions.pop(key, None)
        if partition is not None:
            try:
                partition.close()
            except StorageUnavailable as error:
                _log.warning("%s was released with an unfinished write left in its file: %s", key, error)

    def _take(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> Partition | VolatilePartition:
        folder = self._data.partition(key)
        with refusals(f"open {key}"):
            if not folder.parent.exists():
                settle_in_log(self._register, key, in_log(self._data.id))
            folder.parent.mkdir(exist_ok=True)
            epochs = self._epochs_of(folder.parent)
            stored = settings.durability != "memory" or (folder.exists() and any(find_segments(folder)))
        kind = Partition if stored else VolatilePartition
        return kind(key, epoch, settings, self._tools, epochs)

    def _epochs_of(self, queue_folder: Path) -> Epochs:
        with self._epochs_lock:
            epochs = self._epochs.get(queue_folder)
            if epochs is None:
                epochs = self._epochs[queue_folder] = Epochs(queue_folder / "epochs")
            return epochs
