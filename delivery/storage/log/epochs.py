"""The epochs of a queue's partitions in shared memory: the fence that every host using a data folder looks at.

The file `epochs` of a queue's folder has one slot of four 64-bit numbers per partition, mapped into each process. It
is memory shared by the processes of one machine, so it has that machine's byte order and is never flushed:

    offset size  field of the slot at partition × 32
     0     8     epoch: the newest that opened the partition; only rises, and only under the partition's lock
     8     8     base id of the segment that the next field speaks of; 0 for a queue kept in memory
    16     8     bytes of that segment acknowledged as on disk; for a queue kept in memory, its last id
    24     8     the two before and a constant, xor-ed: shows a pair that two writers mixed up

To look whether an epoch still stands is a memory read. A power cut may bring back an older epoch, which harms nobody:
no process with a still older one survived it, and ZooKeeper gives out only higher ones. It may bring back an older
"acknowledged" as well, which is a lower bound then, since it is noted after the bytes were synced. A fenced owner may
note its own last bytes late; that is why the segment is named, and why a mixture of two notes must be recognisable.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

from delivery.errors import Fenced
from delivery.model import PARTITIONS_MAX

SLOT_BYTES: Final = 32
NOBODY: Final = 2**63 - 1
"""The epoch of a deleted queue's partitions: above any that is given out."""
_FIELDS: Final = SLOT_BYTES // 8
_CHECK: Final = 0x486F6F7445706F63


class Epochs:
    """The mapped slots of one queue. The mapping goes when the last partition that uses it does."""

    __slots__ = ("__weakref__", "_fd", "_slots")

    def __init__(self, path: Path) -> None:
        """Map the file, making it if need be. Raises OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = SLOT_BYTES * PARTITIONS_MAX
            if os.fstat(fd).st_size < size:
                os.ftruncate(fd, size)
            self._slots = memoryview(mmap.mmap(fd, size)).cast("q")
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def current(self, partition: int) -> int:
        """The newest epoch that opened the partition, 0 for none."""
        return self._slots[partition * _FIELDS]

    def raise_to(self, partition: int, epoch: int) -> None:
        """Fence all older epochs. Call it under the partition's lock. Raises Fenced when a newer one is there.

        Raises OSError when the disk has no room for the slot: a mapped page without room would kill the process.
        """
        os.posix_fallocate(self._fd, partition * SLOT_BYTES, SLOT_BYTES)
        if (newer := self.current(partition)) > epoch:
            raise Fenced(f"epoch {newer} has partition {partition} already; {epoch} is too old")
        self._slots[partition * _FIELDS] = epoch

    def note(self, partition: int, base_id: int, value: int) -> None:
        """Remember how far the segment of `base_id` is acknowledged as on disk (base id 0: the last id in memory)."""
        at = partition * _FIELDS
        self._slots[at + 1], self._slots[at + 2], self._slots[at + 3] = base_id, value, base_id ^ value ^ _CHECK

    def noted(self, partition: int, base_id: int) -> int:
        """What was noted of `base_id`, 0 when the note is of another one or was mixed up."""
        _, noted_base, value, check = self._slots[partition * _FIELDS : (partition + 1) * _FIELDS]
        return value if noted_base == base_id and noted_base ^ value ^ _CHECK == check else 0
