"""HBase's tables in memory, as far as the store looks at them, with the faults of a real one placed exactly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from threading import RLock

from delivery.errors import HootError, UnknownOutcome
from delivery.hbase import Cells, CellTooLarge, NoTable, Row, Tables

Data = dict[str, dict[bytes, Cells]]


_LOCK = RLock()


class FakeTables(Tables):
    """The calls of `Tables` over a dictionary that several of them may share. A row changes as a whole, as in HBase."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.rows_until_loss: int | None = None
        """How many rows of the next put arrive, before the call fails."""
        self.lost_answers = 0
        """How many compare-and-sets are done without an answer."""
        self.late: list[tuple[str, Row]] = []
        """Rows of a put that was lost, on their way still."""
        self.families_of: dict[str, set[str]] = {}
        self.namespace = "ours"
        """The one beside HBase's default."""
        self.cell_limit: int | None = None
        """The bytes of the largest cell that HBase takes."""
        self.life: int | None = None
        """The seconds after which HBase would remove all cells."""
        self.now_ms = 1
        self.put_at: dict[tuple[str, bytes, bytes], int] = {}

    def names(self) -> list[str]:
        return list(self.data)

    def families(self, table: str) -> dict[str, int | None]:
        self._table(table)
        families = self.families_of.get(table, {"entry"} if table.endswith(".metastore") else {"batch", "message"})
        return dict.fromkeys(families, self.life)

    def create(self, table: str, families: Sequence[str], compression: str = "NONE") -> None:
        self.data.setdefault(table, {})

    def lacks(self, namespace: str) -> bool:
        return namespace != self.namespace

    def refuses(self, table: str, row: bytes, column: bytes, size: int) -> CellTooLarge | None:
        self._table(table)
        limit = self.cell_limit
        return CellTooLarge(f"exceeds limit of {limit} bytes", limit) if limit is not None and size > limit else None

    def wait_open(self, table: str) -> None:
        self._table(table)

    def drop(self, table: str) -> None:
        self.data.pop(table, None)

    def get(self, table: str, row: bytes, columns: Sequence[bytes]) -> Cells:
        return _chosen(self._table(table).get(row, {}), columns)

    def get_all(self, table: str, rows: Sequence[bytes], columns: Sequence[bytes]) -> dict[bytes, Cells]:
        with _LOCK:
            found = {row: self.get(table, row, columns) for row in rows}
        return {row: cells for row, cells in found.items() if cells}

    def put(self, table: str, rows: Sequence[Row], *, ttl_ms: int | None = None) -> None:
        held = self._table(table)
        arriving, self.rows_until_loss = self.rows_until_loss, None
        for number, (row, cells) in enumerate(rows):
            if arriving is not None and number >= arriving:
                self.late += [(table, one) for one in rows[number:]]
                raise HootError("the connection broke")
            with _LOCK:
                held.setdefault(row, {}).update(cells)
                self.put_at |= {(table, row, column): self.now_ms for column in cells}

    def arrive(self) -> None:
        """What was on its way arrives."""
        late, self.late, self.rows_until_loss = self.late, [], None
        for table, row in late:
            self.put(table, [row])

    def touch(self, table: str, row: bytes, column: bytes) -> tuple[int, int]:
        before = self.put_at.get((table, row, column), 0)
        self.put(table, [(row, {column: b""})])
        return before, self.now_ms

    def expire(self, table: str, column: bytes, prefix: bytes, before_ms: int) -> int:
        held = self._table(table)
        old = [
            row
            for row in held
            if _begins(held[row].get(column, b""), prefix) and self.put_at[table, row, column] < before_ms
        ]
        for row in old:
            del held[row][column]
        return len(old)

    def erase(self, table: str, rows: Sequence[bytes], families: Sequence[str]) -> None:
        held = self._table(table)
        for row in rows:
            left = {name: cell for name, cell in held[row].items() if name.split(b":")[0].decode() not in families}
            if left:
                held[row] = left
            else:
                del held[row]

    def check_and_put(
        self, table: str, row: bytes, check: tuple[bytes, bytes | None], column: bytes, value: bytes
    ) -> bool:
        with _LOCK:
            cells = self._table(table).get(row, {})
            if cells.get(check[0]) != check[1]:
                return False
            self._table(table)[row] = {**cells, column: value}
            self.put_at[table, row, column] = self.now_ms
        if self.lost_answers:
            self.lost_answers -= 1
            raise UnknownOutcome("the answer was lost")
        return True

    def scan(
        self, table: str, start: bytes, stop: bytes, columns: Sequence[bytes], *, limit: int | None = None,
        rows_at_once: int = 1000, keys_only: bool = False, but: bytes | None = None,
    ) -> list[Row]:  # fmt: skip
        with _LOCK:
            rows = [one for one in self._table(table).items() if _between(one[0], start, stop)]
        rows.sort(reverse=start > stop)
        found = ((row, _chosen(cells, columns)) for row, cells in rows)
        left = ((row, {name: cell for name, cell in cells.items() if not _begins(cell, but)}) for row, cells in found)
        there = ((row, dict.fromkeys(cells, b"") if keys_only else cells) for row, cells in left if cells)
        return list(islice(there, limit))

    def close(self) -> None:
        pass

    def _table(self, table: str) -> dict[bytes, Cells]:
        if table not in self.data:
            raise NoTable(f"no table {table}")
        return self.data[table]


def _chosen(cells: Cells, columns: Sequence[bytes]) -> Cells:
    return {name: cell for name, cell in cells.items() if name in columns or name.split(b":")[0] in columns}


def _between(row: bytes, start: bytes, stop: bytes) -> bool:
    return stop < row <= start if start > stop else start <= row < stop


def _begins(cell: bytes, but: bytes | None) -> bool:
    return but is not None and cell.startswith(but)
