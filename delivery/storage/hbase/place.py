"""One partition's place in HBase: its table, its row, and walking over the heads of its batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from delivery.errors import CorruptRecord
from delivery.hbase import Cells, Tables
from delivery.storage.base import PartitionKey
from delivery.storage.hbase import heads, keys
from delivery.storage.hbase.heads import Head
from delivery.storage.hbase.held import Held

PAGE: Final = 64
"""Heads asked for at once; some 250 bytes each on the wire."""
Told = tuple[Head, bytes | None]
"""A head, and the cell of its topics where that was asked for and is there."""
TOLD_PAGE: Final = 128
"""Heads with their topics asked for at once: they are what is read of most batches then."""
ERASE_PAGE: Final = 1000


class Place(NamedTuple):
    """A partition's place."""

    tables: Tables
    table: str
    key: PartitionKey

    @property
    def row(self) -> bytes:
        """The row of the partition itself."""
        return keys.partition_row(self.key.partition)

    def walk(self, from_id: int, until: int | None = None, page: int = PAGE) -> Iterator[Head]:
        """The heads of all epochs with a base from `from_id` up to and with `until`, in the order of their ids.

        Raises StorageUnavailable, CorruptRecord.
        """
        return (head for head, _ in self._walk(from_id, until, page, [keys.HEAD]))

    def counting(self, held: Held, from_id: int, *, told: bool = False, page: int | None = None) -> Iterator[Told]:
        """The heads of what is held with a base from `from_id` on; `told`: with the cells of their topics."""
        columns, most = ([keys.HEAD, keys.TOPICS], TOLD_PAGE) if told else ([keys.HEAD], PAGE)
        found = self._walk(max(from_id, held.kept.id), held.last_id, page or most, columns)
        return ((head, cells.get(keys.TOPICS)) for head, cells in found if held.counts(head.header))

    def _walk(
        self, from_id: int, until: int | None, page: int, columns: Sequence[bytes]
    ) -> Iterator[tuple[Head, Cells]]:  # fmt: skip
        partition = self.key.partition
        start = keys.from_id(partition, from_id)
        stop = keys.partition_end(partition) if until is None else keys.from_id(partition, until + 1)
        while start < stop:
            rows = self.tables.scan(self.table, start, stop, columns, limit=page)
            for row, cells in rows:
                yield self._head(row, cells.get(keys.HEAD, b"")), cells
            if len(rows) < page:
                return
            start = rows[-1][0] + b"\0"

    def erase(self, from_id: int, below: int | None = None) -> None:
        """Delete every row of every epoch from an id up to but without another."""
        partition = self.key.partition
        start = keys.from_id(partition, from_id)
        stop = keys.partition_end(partition) if below is None else keys.from_id(partition, below)
        families = [family.encode() for family in keys.FAMILIES]
        while start < stop:
            rows = self.tables.scan(self.table, start, stop, families, limit=ERASE_PAGE, keys_only=True)
            self.tables.erase(self.table, [row for row, _ in rows], keys.FAMILIES)
            if len(rows) < ERASE_PAGE:
                return
            start = rows[-1][0] + b"\0"

    def _head(self, row: bytes, cell: bytes) -> Head:
        head = heads.unpack(cell)
        header = head.header
        if row != keys.message_row(self.key.partition, header.base_id, header.epoch):
            raise CorruptRecord(f"{self.key}: the head of the batch of {header.base_id} stands in another row")
        return head
