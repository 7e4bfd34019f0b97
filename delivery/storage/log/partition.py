"""One partition of the log under one epoch: appending, reading, trimming."""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import methodcaller
from pathlib import Path
from typing import Final

from delivery.errors import CorruptRecord, Fenced, HootError, StorageUnavailable
from delivery.model import QueueSettings
from delivery.storage.base import Append, Bounds, Chunk, PartitionKey, PartitionState
from delivery.storage.log.disk import Disk, locked, refusals
from delivery.storage.log.epochs import Epochs
from delivery.storage.log.folder import DataFolder
from delivery.storage.log.index import Extent, Index, encode, read_trailer
from delivery.storage.log.reader import Reader
from delivery.storage.log.recovery import recover
from delivery.storage.log.segment import ClosedFiles, LogFile, Segment
from delivery.storage.order import assert_in_order
from delivery.storage.retention import expired, oldest_kept_id

SEGMENT_BYTES_MIN: Final = 256 * 1024
_last_id = methodcaller("last_id")
_log = logging.getLogger(__name__)


class Partition:
    """A partition that this process owns, until it is closed, fenced or broken.

    `write`, `sync`, `confirm`, `trim` and `close` are called by one thread at a time (the store has a lock per
    partition); `read`, `bounds` and `count` by any.
    """

    def __init__(self, key: PartitionKey, epoch: int, settings: QueueSettings, places: Places) -> None:
        """Fence older epochs, recover and seal what they left. Raises Fenced, CorruptRecord, StorageUnavailable."""
        self.key, self.epoch = key, epoch
        self._data, self._disk, self._files, self._epochs = places.data, places.disk, places.files, places.epochs
        self._folder = places.data.partition(key)
        self._segment_bytes = _segment_bytes(places.segment_bytes, settings)
        self._reader = Reader(places.files)
        self._active: Segment | None = None
        self._pending: Sequence[Append] = ()
        self._synced = False
        self._broken: HootError | None = None
        with refusals(f"open {key}"):
            self._folder.mkdir(exist_ok=True)
            with locked(self._folder / "lock"):
                self._epochs.raise_to(key.partition, epoch)
                found = recover(self._folder, self._epochs, key.partition, epoch, self._disk)
        self._segments, self.last_id, self._producers, self._relic = found
