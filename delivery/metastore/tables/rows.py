"""The table of HBase that holds a MetaStore: its calls, with what they mean for metadata, and many of them at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from delivery.errors import HootError, InvalidRequest, MetadataUnavailable, StorageUnavailable, UnknownOutcome
from delivery.hbase import NoTable
from delivery.metastore.errors import ValueTooLarge
from delivery.metastore.ops import InDoubt
from delivery.metastore.tables import cells
from delivery.metastore.tables.cells import Bounds, Swap

if TYPE_CHECKING:
    from delivery.hbase import Row, Tables

READ_AT_ONCE: Final = 64
"""Rows of one get: 36 MiB with the largest values there can be."""
_END: Final = b"\xff"
"""Above every row: names are ASCII."""
KEPT_MS: Final = 3_600_000
"""What was removed is deleted so much later, and looked for as often. Two clocks of HBase are never that far apart: a
master takes no region server whose clock differs by half a minute."""
SWAPS_AT_ONCE: Final = 8
"""Connections that compare and set at the same time: each waits for the log of a region server, which takes many."""


class Rows:
    """The table `name` over `tables`, which it closes. Blocking and thread-safe.

    Raises MetadataUnavailable when HBase cannot do it in time, does not allow it or has no such table.
    """

    def __init__(self, tables: Tables, name: str, swaps_at_once: int = SWAPS_AT_ONCE) -> None:
        self.tables, self.name = tables, name
        self._threads = ThreadPoolExecutor(swaps_at_once, thread_name_prefix="metastore-hbase")
        self._run = self._threads.map if swaps_at_once > 1 else map

    def make(self) -> None:
        """Make the table where there is none."""
        if self.families() is None:
            with self._told():
                self.tables.create(self.name, [cells.FAMILY])
                self.tables.wait_open(self.name)

    def families(self) -> dict[str, int | None] | None:
        """The table's column families, with the life of their cells in seconds; None when it is not there."""
        with self._told():
            try:
                return self.tables.families(self.name)
            except NoTable:
                return None

    def is_empty(self) -> bool:
        """Whether nobody has put anything."""
        with self._told():
            found = self.tables.scan(self.name, b"", _END, [cells.FAMILY.encode()], limit=1, keys_only=True)
            return not found

    def get(self, rows: Sequence[bytes]) -> list[bytes | None]:
        """The cell of each row, None where there is none."""
        found: dict[bytes, bytes] = {}
        with self._told():
            for at in range(0, len(rows), READ_AT_ONCE):
                part = self.tables.get_all(self.name, rows[at : at + READ_AT_ONCE], [cells.COLUMN])
                found |= {row: columns[cells.COLUMN] for row, columns in part.items()}
        return [found.get(row) for row in rows]

    def scan(self, bounds: Bounds, limit: int, *, keys_only: bool = False) -> list[Row]:
        """The first `limit` entries between two rows that were not removed; with `keys_only` without their cells."""
        if bounds.is_empty:
            return []
        with self._told():
            return self.tables.scan(
                self.name, bounds.start, bounds.stop, [cells.COLUMN], limit=limit, keys_only=keys_only,
                but=cells.REMOVED,
            )  # fmt: skip

    def sweep(self) -> int:
        """Delete the cells of entries that were removed long ago, unless somebody did so a while ago; how many."""
        with self._told():
            before, now = self.tables.touch(self.name, cells.STORE_ROW, cells.SWEPT)
            if now - before < KEPT_MS:
                return 0
            return self.tables.expire(self.name, cells.COLUMN, cells.REMOVED, now - KEPT_MS)

    def put(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Put cells, whatever is there."""
        with self._told():
            self.tables.put(self.name, [(row, {cells.COLUMN: cell}) for row, cell in rows])

    def swap(self, swap: Swap) -> bool:
        """Compare and set. Raises InDoubt when the answer was lost, ValueTooLarge."""
        column = cells.COLUMN
        try:
            with self._told():
                return self.tables.check_and_put(self.name, swap.row, (column, swap.expected), column, swap.new)
        except UnknownOutcome as error:
            raise InDoubt(error.message) from error
        except InvalidRequest as error:
            raise ValueTooLarge(f"HBase does not take {len(swap.new)} bytes in a cell: {error.message}") from error

    def swap_many(self, swaps: Sequence[Swap]) -> list[bool | HootError | None]:
        """Many, each by itself: whether it was done, or what `swap` raises; None for what was not tried any more."""
        failed = threading.Event()

        def one(swap: Swap) -> bool | HootError | None:
            if failed.is_set():
                return None
            try:
                return self.swap(swap)
            except MetadataUnavailable as error:
                failed.set()
                return error
            except HootError as error:
                return error

        return list(map(one, swaps) if len(swaps) == 1 else self._run(one, swaps))

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.tables.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except NoTable as error:
            raise MetadataUnavailable(f"HBase's table {self.name} of metadata is not there any more") from error
        except StorageUnavailable as error:
            raise MetadataUnavailable(f"metadata in the table {self.name}: {error.message}") from error
