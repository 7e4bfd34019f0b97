"""The MetaStore in HBase (seed 001; seed 000 on millions of topics): all of its tables in one table of HBase.

`cells` has the rows and cells, and why an entry is one cell; `rows` the calls, `walking` the cursors. Entries of both
kinds of tables are in the order of their keys. HBase has no watches: who watches asks again (see `PolledShots`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from delivery.errors import CorruptRecord, HootError, LayoutMismatch, MetadataUnavailable
from delivery.metastore.errors import IllegalOperation
from delivery.metastore.ops import InDoubt
from delivery.metastore.tables import cells
from delivery.metastore.tables.base import (
    Change,
    Found,
    MetaStore,
    MetastoreCursor,
    MetastoreScannableTable,
    MetastoreTable,
    ToWatch,
    check_table,
)
from delivery.metastore.tables.cells import CellWork, Swap
from delivery.metastore.tables.changes import first_of_each, work_off
from delivery.metastore.tables.entries import decode_value
from delivery.metastore.tables.ranges import EVERYTHING, KeyRange
from delivery.metastore.tables.rows import SWAPS_AT_ONCE, Rows
from delivery.metastore.tables.values import EMPTY, NONE, Fields, Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.tables.walking import HBaseCursor
from delivery.metastore.tables.watching import POLL_SECONDS, PolledShots
from delivery.model import lay_out

if TYPE_CHECKING:
    from delivery.hbase import Tables

CHANGES_AT_ONCE: Final = 250
_REMOVED_AT_ONCE: Final = 1000


class StoreRecord(msgspec.Struct, frozen=True):
    """Whose metadata it is, and how they are kept."""

    cluster: str
    version: int


class TableRecord(msgspec.Struct, frozen=True):
    """What a table was made as."""

    ordered: bool


lay_out(StoreRecord, TableRecord)


class HBaseTable(MetastoreScannableTable):
    """A table of either kind."""

    def __init__(self, store: MetaStore, name: str, rows: Rows, shots: PolledShots) -> None:
        super().__init__(store, name)
        self._rows, self._shots = rows, shots

    def _read(self, keys: Sequence[str], *, whole: bool) -> list[Found]:
        found = self._rows.get([cells.row_of(self.name, key) for key in keys])
        return [self._entry(key, cell, whole=whole) for key, cell in zip(keys, found, strict=True)]

    def _entry(self, key: str, cell: bytes | None, *, whole: bool) -> Found:
        seen = cells.seen(cell)
        if seen is None:
            return None
        try:
            value: Value = decode_value(seen[0], self.name, key) if whole else EMPTY
        except CorruptRecord as error:
            return error
        return Versioned(value, Version(seen[1]))

    def _change(self, changes: Sequence[Change]) -> list[Version | HootError]:
        works = [CellWork(change, self.name) for change in changes]
        work_off(works, self._round)
        return [work.outcome for work in works if work.outcome is not None]

    def _round(self, pending: Sequence[CellWork]) -> None:
        """Look where that is needed, then compare and set many at a time, each by itself.

        Raises MetadataUnavailable when HBase could not be asked at all: the next ones would wait for it as long.
        """
        batch = first_of_each(pending, CHANGES_AT_ONCE)
        looking = [work for work in batch if work.looks]
        for work, cell in zip(looking, self._rows.get([work.row for work in looking]) if looking else (), strict=True):
            work.look(cell)
        planned = [work for work in batch if work.outcome is None]
        swaps = [work.swap() for work in planned]
        outcomes = self._rows.swap_many(swaps)
        for work, swap, outcome in zip(planned, swaps, outcomes, strict=True):
            if outcome is not None:
                work.answered(swap, outcome)
        for outcome in outcomes:
            if isinstance(outcome, MetadataUnavailable) and not isinstance(outcome, InDoubt):
                raise outcome

    def _arm(self, watches: Sequence[ToWatch]) -> None:
        self._shots.add(watches, lambda key: f"{self.name}/{key}", self._look)

    def _look(self, keys: Sequence[str]) -> list[Found]:
        return self._read(keys, whole=True)

    def _cursor(self, keys: KeyRange, fields: Fields) -> MetastoreCursor:
        def decode(key: str, cell: bytes) -> Found:
            found = self._entry(key, cell, whole=fields != NONE)
            return Versioned(found.value.project(fields), found.version) if isinstance(found, Versioned) else found

        return HBaseCursor(self._rows, self.name, keys, decode)


class HBaseMetaStore(MetaStore):
    """A MetaStore in the table `PREFIX.metastore` of HBase, which many processes share. Closes `tables` with itself."""

    name: ClassVar[str] = "hbase"
    version: ClassVar[int] = 1

    def __init__(
        self, tables: Tables, prefix: str, cluster: str, *, poll_seconds: float = POLL_SECONDS,
        swaps_at_once: int = SWAPS_AT_ONCE,
    ) -> None:  # fmt: skip
        """Asks nobody. `cluster` is what tells this cluster's metadata from those of others."""
        super().__init__()
        self._rows = Rows(tables, table_name(prefix), swaps_at_once)
        self._cluster = cluster
        self._shots = PolledShots(poll_seconds)
        self._lock = threading.Lock()
        self._kinds: dict[str, bool] = {}
        self._checked = False

    def prepare(self) -> None:
        """Make the table of HBase where there is none, and take it for this cluster.

        Raises LayoutMismatch, nothing changed in it, when somebody else has made it.
        """
        self._rows.make()
        record = msgspec.json.encode(StoreRecord(self._cluster, self.version))
        if self._rows.get([cells.STORE_ROW]) == [None] and self._rows.is_empty():
            self._put_new(cells.STORE_ROW, None, record)
        self.check()

    def check(self) -> None:
        """Raises LayoutMismatch unless the table of HBase is there and this cluster's."""
        families = self._rows.families()
        if families is None:
            raise LayoutMismatch(
                f"HBase has no table {self._rows.name}, which is to hold this cluster's metadata: bring it back, or"
                " wipe all of Hoot's metadata with `hoot metastore format`"
            )
        if set(families) != {cells.FAMILY}:
            raise _foreign(self._rows.name, f"its families are {', '.join(sorted(families))}")
        if (life := families[cells.FAMILY]) is not None:
            raise LayoutMismatch(
                f"HBase would remove this cluster's metadata in {self._rows.name} {life} s after each change: say there"
                f" alter '{self._rows.name}', {{NAME => '{cells.FAMILY}', TTL => 'FOREVER'}}"
            )
        self._check_record(self._rows.get([cells.STORE_ROW])[0])
        self._checked = True

    def create_table(self, name: str) -> MetastoreTable:
        """See MetaStore."""
        self._kind(check_table(name), ordered=False)
        return HBaseTable(self, name, self._rows, self._shots)

    def create_scannable_table(self, name: str) -> MetastoreScannableTable:
        """See MetaStore."""
        if not self._kind(check_table(name), ordered=True):
            raise IllegalOperation(f"table {name!r} is there already, and without an order")
        return HBaseTable(self, name, self._rows, self._shots)

    def drop_table(self, name: str) -> None:
        """See MetaStore. Its entries stay in HBase as removed ones. Raises LayoutMismatch when they are another's."""
        self.check_open()
        last = None
        check_table(name)
        self.check()
        with self._lock:
            self._kinds.pop(name, None)
        while found := self._rows.scan(cells.bounds(name, EVERYTHING, last), _REMOVED_AT_ONCE, keys_only=True):
            self._rows.put([(row, cells.removed()) for row, _ in found])
            last = found[-1][0]
        self._rows.put([(name.encode(), cells.removed())])

    def sweep(self) -> int:
        """See MetaStore."""
        self.check_open()
        return self._rows.sweep()

    def close(self) -> None:
        """See MetaStore. Closes the connections to HBase."""
        super().close()
        self._shots.close()
        self._rows.close()

    def _kind(self, name: str, *, ordered: bool) -> bool:
        """Whether the table has an order; it is made, `ordered` or not, when it is not there."""
        self.check_open()
        if not self._checked:
            self.check()
        with self._lock:
            kind = self._kinds.get(name)
        if kind is None:
            kind = self._record(name, ordered).ordered
            with self._lock:
                self._kinds[name] = kind
        return kind

    def _record(self, name: str, ordered: bool) -> TableRecord:
        row = name.encode()
        cell = self._rows.get([row])[0]
        if cell is None or cell.startswith(cells.REMOVED):
            self._put_new(row, cell, msgspec.json.encode(TableRecord(ordered)))
            cell = self._rows.get([row])[0]
        try:
            return msgspec.json.decode(cell or b"", type=TableRecord)
        except msgspec.DecodeError as error:
            raise CorruptRecord(
                f"row {name!r} of HBase's table {self._rows.name} is no TableRecord: {error}"
            ) from error

    def _put_new(self, row: bytes, there: bytes | None, record: bytes) -> None:
        """Put a record where there is none; whoever was first, what is there afterwards counts."""
        with contextlib.suppress(InDoubt):
            self._rows.swap(Swap(row, there, record))

    def _check_record(self, cell: bytes | None) -> None:
        if cell is None:
            raise _foreign(self._rows.name, "it does not say whose it is")
        try:
            record = msgspec.json.decode(cell, type=StoreRecord)
        except msgspec.DecodeError as error:
            raise _foreign(self._rows.name, f"what says whose it is cannot be read, {error}") from error
        if record.version != self.version:
            raise LayoutMismatch(
                f"the metadata in HBase's table {self._rows.name} are kept in version {record.version}, and this"
                f" program knows version {self.version}: use the program that wrote them"
            )
        if record.cluster != self._cluster:
            raise _foreign(self._rows.name, f"it belongs to the cluster {record.cluster}, and this is {self._cluster}")


def table_name(prefix: str) -> str:
    """The table of HBase for metadata. No queue's table has such a name: these have three parts."""
    return f"{prefix}.metastore"


def _foreign(table: str, why: str) -> LayoutMismatch:
    return LayoutMismatch(
        f"the table {table} of HBase is none of this cluster's: {why}. Choose another hbase_prefix, or drop it there if"
        " nobody needs it"
    )
