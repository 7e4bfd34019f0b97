"""A partition as somebody reads it who does not own it: nothing is fenced, sealed or written.

Only what lies up to a watermark that an owner has told may be read so: that owner had sealed all before it, and left a
checkpoint that tells which epoch's rows count; later checkpoints tell the same of them. Retention moves the checkpoint
before it erases a row, so whoever finds it where it was has missed nothing in what was read before.
"""

from __future__ import annotations

from delivery.errors import CorruptRecord, Fenced
from delivery.storage.base import Chunk
from delivery.storage.hbase import keys, records
from delivery.storage.hbase.held import follow
from delivery.storage.hbase.partition import Partition
from delivery.storage.hbase.place import Place
from delivery.storage.hbase.records import Checkpoint

_CELLS = [keys.OWNER, keys.CHECKPOINT]


class View:
    """What counts of a partition up to an id; blocking."""

    def __init__(self, place: Place, until: int) -> None:
        """`until` is not above a watermark that an owner has told. Raises StorageUnavailable, CorruptRecord."""
        self._place, self._partition = place, _partition(place, until)

    def read(self, after: int, bytes_max: int) -> Chunk | None:
        """Batches behind `after` as `MessageStore.read` gives them, of the engine's own too.

        None where there are none in the table, or not all any more. Raises StorageUnavailable, Fenced, CorruptRecord.
        """
        if self._partition is None:
            return None
        try:
            chunk = self._partition.read(after, bytes_max)
        except (CorruptRecord, Fenced):
            if after + 1 < self._first_kept():
                return None
            raise
        return None if chunk is None or after + 1 < self._first_kept() else chunk

    def _first_kept(self) -> int:
        cells = self._place.tables.get(self._place.table, self._place.row, _CELLS)
        return records.decode_checkpoint(cells[keys.CHECKPOINT]).held.kept.id


def _partition(place: Place, until: int) -> Partition | None:
    cells = place.tables.get(place.table, place.row, _CELLS)
    if not cells.keys() >= set(_CELLS):
        return None
    found = records.decode_checkpoint(cells[keys.CHECKPOINT])
    held = found.held
    for head in follow(held.last_id, found.epoch, place.walk(held.last_id + 1, until)):
        held = held.found(head)
    return Partition(place, records.decode_owner(cells[keys.OWNER]), Checkpoint(found.epoch, held, ()))
