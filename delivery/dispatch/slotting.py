"""Which messages of a partition one member gets, where several share it by key: cutting batches by slots.

Slots are worked out for a batch at once, and kept for the lanes of the other members, which look at the same batches
at about the same time.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Final

import google_crc32c

from delivery.batch import Batch, Header
from delivery.batch.layout import KEYS
from delivery.batch.select import Refuses
from delivery.filters import Filter
from delivery.metastore.slots import SLOTS, slot_of, slot_of_id

_KEPT: Final = 16
"""Batches whose slots are remembered."""
_LOW_HALVES: Final = slice(0 if sys.byteorder == "little" else 1, None, 2)
_TABLE: Final = 1 << 16
"""Slots are the last bits of a checksum, of which the last 16 are at hand without a step of Python for each."""


class SlotColumns:
    """The slots of the messages of a partition, batch by batch. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int, int], Sequence[int]] = {}

    def of(self, batch: Batch) -> Sequence[int]:
        """A number for each message, which modulo SLOTS is its slot."""
        header = batch.header
        name = (header.base_id, header.count, header.payload_crc)
        with self._lock:
            found = self._known.get(name)
        if found is None:
            found = _column(batch)
            with self._lock:
                self._known[name] = found
                if len(self._known) > _KEPT:
                    del self._known[next(iter(self._known))]
        return found


def _column(batch: Batch) -> Sequence[int]:
    if not batch.header.flags & KEYS:
        return array("H", map(slot_of_id, batch.ids()))
    keys = batch.keys()
    if None in keys:
        return array("H", map(slot_of, keys, batch.ids()))
    checksums = array("I", map(google_crc32c.value, keys))
    return array("H", memoryview(checksums).cast("B").cast("H")[_LOW_HALVES].tolist())


class InSlots:
    """The messages in some slots that a filter takes, too (scanner.Judge)."""

    looks_inside = True

    def __init__(
        self, reached: Iterable[tuple[frozenset[int], int]], columns: SlotColumns, wanted: Filter | None
    ) -> None:  # fmt: skip
        """`reached` are the slots, and behind which id each is to go on; a scan begins behind the lowest."""
        self._columns, self._filter = columns, wanted
        self.refuses: Refuses | None = None if wanted is None else wanted.refuses
        self._reached = [0] * SLOTS
        self._behind = 0
        """Up to this id the slots go on at different places."""
        mine = bytearray(SLOTS)
        for slots, position in reached:
            self._behind = max(self._behind, position)
            for slot in slots:
                mine[slot], self._reached[slot] = 1, position
        self._mine = bytes(mine) * (_TABLE // SLOTS)

    def decide(self, header: Header, dictionary: bytes) -> bool | None:
        """See select.Wanted. Without keys a small batch is in one slot as a whole."""
        decided = True if self._filter is None else self._filter.decide(header, dictionary)
        if decided is False:
            return False
        first = slot_of_id(header.base_id)
        is_whole = first == slot_of_id(header.last_id) and header.span <= SLOTS
        if header.flags & KEYS or header.base_id <= self._behind or not is_whole:
            return None
        return decided if self._mine[first] else False

    def choose(self, batch: Batch) -> Sequence[int]:
        """See select.Wanted."""
        slots, mine = self._columns.of(batch), self._mine
        places: Sequence[int] = list(compress(range(batch.header.count), map(mine.__getitem__, slots)))
        if batch.header.base_id <= self._behind:
            ids, reached = batch.ids(), self._reached
            places = [place for place in places if ids[place] > reached[slots[place] % SLOTS]]
        if self._filter is not None and places:
            taken = frozenset(self._filter.choose(batch))
            places = [place for place in places if place in taken]
        return places
