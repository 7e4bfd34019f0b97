"""Rows and cells of the MetaStore in HBase, and one change as a compare-and-set of a cell. Decides, does no I/O.

    row          TABLE, 0, KEY       an entry; TABLE alone: what the table is; 0 alone: whose all of it is
    entry:swept  of the row 0    when that was last done
    entry:value  of an entry         `+`, a mark of 8 random bytes, the version u32, and the value as in `entries`
                 of a removed one    `-` and a mark

HBase's checkAndPut compares one cell and puts one cell, so an entry is one cell: fields, version and all. What it
compares is content, and no two changes write the same, because of the mark. So a change that was decided on what is no
longer there is refused whenever it arrives, and one whose answer was lost is known again by its mark.

An entry is not deleted but marked as removed. HBase's deletion hides whatever is put in the same millisecond, or later
by a region server whose clock is behind: a new entry of that key could be acknowledged and not be there. What was
removed an hour ago is deleted as of then, which is before anything that may still be put.
"""

from __future__ import annotations

import secrets
import struct
import zlib
from typing import Final

import msgspec

from delivery.errors import HootError, MetadataUnavailable
from delivery.metastore.ops import Create, InDoubt, Set
from delivery.metastore.tables.base import Change
from delivery.metastore.tables.changes import Seen, Work
from delivery.metastore.tables.ranges import KeyRange, Order

FAMILY: Final = "entry"
COLUMN: Final = b"entry:value"
SWEPT: Final = b"entry:swept"
STORE_ROW: Final = b"\0"
REMOVED: Final = b"-"
DOUBTS_MAX: Final = 3
"""How often one change is sent again after its answer was lost."""

_HEADER: Final = struct.Struct(">c8sI")
_PRESENT: Final = b"+"
_MARK_BYTES: Final = 8
_FOREIGN_VERSIONS: Final = 2**30
_BEYOND: Final = b"\xff"
"""Above every key: no UTF-8 has this byte."""


def row_of(table: str, key: str) -> bytes:
    """The row of an entry."""
    return f"{table}\0{key}".encode(errors="surrogatepass")


def key_of(table: str, row: bytes) -> str | None:
    """The key of a row of `table`; None for a row that no key has."""
    try:
        return row[len(table) + 1 :].decode() or None
    except UnicodeDecodeError:
        return None


def removed() -> bytes:
    """The cell of an entry that is no more, like no other."""
    return REMOVED + secrets.token_bytes(_MARK_BYTES)


def present(version: int, value: bytes) -> bytes:
    """The cell of an entry, like no other."""
    return _HEADER.pack(_PRESENT, secrets.token_bytes(_MARK_BYTES), version) + value


def seen(cell: bytes | None) -> Seen:
    """The value and version in a cell, None when there is no entry.

    What is not Hoot's has no value that could be read. Its version is a checksum, so that it can be listed, put over
    and removed like any other damaged entry.
    """
    if cell is None or cell.startswith(REMOVED):
        return None
    if len(cell) < _HEADER.size or not cell.startswith(_PRESENT):
        return cell[:1], zlib.crc32(cell) % _FOREIGN_VERSIONS
    return cell[_HEADER.size :], _HEADER.unpack_from(cell)[2]


class Bounds(msgspec.Struct, frozen=True):
    """The rows of a scan: from `start`, up or down, to and without `stop`."""

    start: bytes
    stop: bytes
    downwards: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no row is between the two."""
        return self.start <= self.stop if self.downwards else self.start >= self.stop


def bounds(table: str, keys: KeyRange, last: bytes | None = None) -> Bounds:
    """The rows of a range of keys, or of what is left of it behind the row `last`."""
    low = row_of(table, keys.low or "")
    high = row_of(table, "") + _BEYOND if keys.high is None else row_of(table, keys.high)
    if keys.order is Order.ASC:
        if last is not None:
            low = last + b"\0"
        elif keys.low is not None and not keys.low_inclusive:
            low += b"\0"
        return Bounds(low, high + b"\0" if keys.high is not None and keys.high_inclusive else high)
    if last is not None:
        high = _below(last)
    elif keys.high is not None and not keys.high_inclusive:
        high = _below(high)
    return Bounds(high, _below(low) if keys.low is not None and keys.low_inclusive else low, downwards=True)


def _below(row: bytes) -> bytes:
    """Between a row and whatever row comes right before it, or that one itself."""
    return row[:-1] if row[-1] == 0 else row[:-1] + bytes([row[-1] - 1]) + _BEYOND


class Swap(msgspec.Struct, frozen=True):
    """A compare-and-set of one cell; None is no cell."""

    row: bytes
    expected: bytes | None
    new: bytes


class CellWork(Work):
    """One change on its way to HBase, which looks before it writes, unless the key is to be new."""

    def __init__(self, change: Change, table: str) -> None:
        super().__init__(change, table, change.key)
        self.row = row_of(table, change.key)
        self.looks = not self.creates
        self._found: bytes | None = None
        self._doubtful: Swap | None = None
        self._doubts = 0

    def look(self, cell: bytes | None) -> None:
        """Take in the cell that is there now; may end the change."""
        if self._doubtful is None:
            self._found = cell
            self.see(seen(cell))
        elif cell == self._doubtful.new:
            self.done()
        elif cell == self._doubtful.expected:
            self.looks = False  # it may still arrive: the very same is sent again, and at most one of the two is done
        else:
            self.outcome = InDoubt(
                f"{self.change.key!r} of table {self.table} was changed by others when an answer of HBase was lost"
            )

    def swap(self) -> Swap:
        """What to ask of HBase."""
        if self._doubtful is not None:
            return self._doubtful
        op = self.op()
        if not isinstance(op, Create | Set):
            return Swap(self.row, self._found, removed())
        version = 0 if self.creates else self._version + 1
        return Swap(self.row, self._found, present(version, op.value))

    def answered(self, swap: Swap, outcome: bool | HootError) -> None:
        """Take in what became of a swap."""
        if outcome is True:
            self.done()
        elif isinstance(outcome, InDoubt):
            self._doubtful, self.sent, self.looks = swap, True, True
            self._doubts += 1
            if self._doubts > DOUBTS_MAX:
                self.outcome = outcome
        elif isinstance(outcome, HootError):
            is_open = self.sent and isinstance(outcome, MetadataUnavailable)
            self.outcome = InDoubt(outcome.message) if is_open else outcome
        elif self._doubtful is not None:
            self.looks = True
        else:
            self.refused()

    def cut_off(self, error: MetadataUnavailable) -> None:
        """See Work: what was sent without an answer is in doubt."""
        super().cut_off(InDoubt(error.message) if self.sent else error)
