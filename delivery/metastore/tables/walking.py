"""The cursor over a range of keys in HBase: no entry is read before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from delivery import logs
from delivery.errors import HootError, ScannerClosed
from delivery.metastore.errors import IllegalOperation
from delivery.metastore.tables import cells
from delivery.metastore.tables.base import Found, MetastoreCursor, MetastoreTableItem
from delivery.metastore.tables.cursors import BATCH_BYTES_MAX, ENTRIES_AT_ONCE
from delivery.metastore.tables.ranges import KeyRange
from delivery.metastore.tables.rows import Rows

if TYPE_CHECKING:
    from delivery.hbase import Row

ENTRIES_AT_ONCE_MAX: Final = 1000
SMALL_BYTES: Final = BATCH_BYTES_MAX // 16
"""While a scan gives less than this, the next one is four times as long."""

log = logs.logger(__name__)

Decode = Callable[[str, bytes], Found]
"""What a cell says of a key."""


class HBaseCursor(MetastoreCursor):
    """A walk in scans of some entries each; every one begins behind the row where the last one ended."""

    def __init__(self, rows: Rows, table: str, keys: KeyRange, decode: Decode) -> None:
        self._rows: Rows | None = rows
        self._table, self._keys, self._decode = table, keys, decode
        self._last: bytes | None = None
        self._ended = False
        self._at_once = ENTRIES_AT_ONCE

    def has_more_entries(self) -> bool:
        """See MetastoreCursor."""
        rows = self._check(0)
        if not self._ended:
            self._ended = not rows.scan(cells.bounds(self._table, self._keys, self._last), 1, keys_only=True)
        return not self._ended

    def read_entries(self, entries: int) -> list[MetastoreTableItem]:
        """See MetastoreCursor."""
        rows = self._check(entries)
        items: list[MetastoreTableItem] = []
        size = 0
        while len(items) < entries and size < BATCH_BYTES_MAX and not self._ended:
            try:
                found = self._scan(rows, min(entries - len(items), self._at_once))
            except HootError:
                if not items:
                    raise
                break  # what was read counts; the next call says what is wrong
            here = sum(len(columns[cells.COLUMN]) for _, columns in found)
            self._at_once = min(4 * self._at_once, ENTRIES_AT_ONCE_MAX) if here < SMALL_BYTES else ENTRIES_AT_ONCE
            size += here
            for row, columns in found:
                items += self._item(row, columns[cells.COLUMN])
        return items

    def read_keys(self, keys: int) -> list[str]:
        """See MetastoreCursor."""
        rows = self._check(keys)
        found: list[str] = []
        while keys and not found and not self._ended:
            read = [cells.key_of(self._table, row) for row, _ in self._scan(rows, keys, keys_only=True)]
            found = [key for key in read if key is not None]
        return found

    def close(self) -> None:
        """See MetastoreCursor."""
        self._rows = None

    def _scan(self, rows: Rows, limit: int, *, keys_only: bool = False) -> list[Row]:
        found = rows.scan(cells.bounds(self._table, self._keys, self._last), limit, keys_only=keys_only)
        self._ended = len(found) < limit
        if found:
            self._last = found[-1][0]
        return found

    def _item(self, row: bytes, cell: bytes) -> list[MetastoreTableItem]:
        key = cells.key_of(self._table, row)
        if key is None:
            log.warning("row %r of HBase is not Hoot's and is passed over", row[:80])
            return []
        found = self._decode(key, cell)
        return [] if found is None else [MetastoreTableItem(key, found)]

    def _check(self, count: int) -> Rows:
        if count < 0:
            raise IllegalOperation(f"a batch has 0 or more, not {count}")
        if self._rows is None:
            raise ScannerClosed("this cursor was closed")
        return self._rows
