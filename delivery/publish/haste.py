"""Whether a batch may be stored on the trio thread itself, where that is sooner done than handing it over and back.

The way to the committing thread and back takes some 70 µs, as long as a good disk takes for a flush. So a small batch
is stored at once where the store has always answered sooner than anybody would notice: everything else that the host
does stands still meanwhile. After each time that it was slow it has to earn that again, with groups that the thread
stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delivery.storage.base import Append

BYTES_MAX: Final = 8 * 1024
"""What is larger comes from a publisher with many messages under way, whom the thread serves better."""
SOON_SECONDS: Final = 0.0005
"""Most disks without a cache that outlasts a power failure take longer for a flush."""
IN_A_ROW: Final = 32
"""So many groups must have been stored so soon."""


class Haste:
    """Plain decisions, for one thread."""

    __slots__ = ("_flushed", "_written")

    def __init__(self) -> None:
        self._flushed = self._written = 0
        """Groups since the last slow one that were flushed to the disk, and all."""

    def may(self, item: Append) -> bool:
        """Whether this batch may be stored at once."""
        soon = self._flushed if item.durability == "fsync" else self._written
        return soon >= IN_A_ROW and len(item.batch) <= BYTES_MAX

    def noted(self, group: Sequence[Append], seconds: float) -> None:
        """How long a group took, wherever it was stored."""
        if seconds > SOON_SECONDS:
            self._flushed = self._written = 0
            return
        self._written += 1
        if any(item.durability == "fsync" for item in group):
            self._flushed += 1
