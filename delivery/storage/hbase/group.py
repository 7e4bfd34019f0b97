"""Committing a group of batches: each table's rows in as few requests as fit, then the owners' cells, then the answers.

The look at the owners' cells comes after the rows were put: if an owner stood then, the seal of any later one comes
later and includes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final

from delivery.errors import Fenced, HootError, StorageUnavailable
from delivery.hbase import Cells, CellTooLarge, NoTable, Row, Tables
from delivery.storage.base import Append, PartitionKey
from delivery.storage.hbase import keys
from delivery.storage.hbase.partition import Partition

CELL_BYTES: Final = 23
"""What HBase adds to row, column (without its colon) and value when it counts the bytes of a cell."""


class Share:
    """One open partition's part of a group, and how its batches fared."""

    def __init__(self, partition: Partition, batches: Sequence[Append]) -> None:
        self.partition = partition
        self.stored = 0
        self.error: HootError | None = None
        self.refused: dict[int, HootError] = {}
        """Those that HBase will never take, by their places."""
        self.rows: list[Row] = []
        mine = list(takewhile(lambda item: item.epoch == partition.epoch, batches))
        try:
            self.rows = partition.plan(mine) if mine else []
        except HootError as error:
            self.error = error
        if self.error is None and len(mine) < len(batches):
            self.error = Fenced(f"{partition.place.key} is open under epoch {partition.epoch} here")

    def fail(self, error: HootError) -> None:
        """It is not known what was put, or known that it does not count; of what no cell holds that it was not put."""
        if isinstance(error, CellTooLarge) and error.limit is not None:
            self.refused = dict.fromkeys(_too_large(self.rows, error.limit), error)
        self.error = self.partition.fail(error)

    def confirm(self, owner: bytes | None) -> None:
        """Count what was put."""
        planned_all = self.error is None
        try:
            self.stored = self.partition.confirm(owner)
        except HootError as error:
            self.fail(error)
        else:
            if planned_all and self.partition.broken is not None:
                self.error = self.partition.broken


def _too_large(rows: Iterable[Row], limit: int) -> Iterator[int]:
    """The places of the batches with a cell above the limit for sure: a life or a tag takes some bytes more."""
    place = -1
    for row, cells in rows:
        place += keys.HEAD in cells
        if CELL_BYTES + _largest(row, cells) > limit:
            yield place


def _largest(row: bytes, cells: Cells) -> int:
    return max(len(row) + len(column) + len(value) for column, value in cells.items())


def commit(
    tables: Tables, group: Sequence[Append], partitions: Mapping[PartitionKey, Partition]
) -> list[HootError | None]:
    """Store a group and answer each of its batches. The caller holds the locks of all partitions in it."""
    batches: dict[PartitionKey, list[Append]] = {}
    for item in group:
        batches.setdefault(item.key, []).append(item)
    shares = {key: Share(partitions[key], items) for key, items in batches.items() if key in partitions}
    together: dict[tuple[str, int | None], list[Share]] = {}
    for share in shares.values():
        if share.rows:
            together.setdefault((share.partition.place.table, share.partition.ttl_ms), []).append(share)
    for (table, ttl_ms), alike in together.items():
        _commit(tables, table, ttl_ms, alike)
    return _answers(group, shares)


def _commit(tables: Tables, table: str, ttl_ms: int | None, shares: Sequence[Share]) -> None:
    """Put the rows of partitions of one table, whose cells get the same life, and look at the owners' cells."""
    failure: HootError | None = None
    rows = [row for share in shares for row in share.rows]
    try:
        tables.put(table, rows, ttl_ms=ttl_ms)
    except CellTooLarge as error:
        # Where the limit is not told, it is below the largest cell at least.
        failure = CellTooLarge(error.message, error.limit or max(_largest(*row) for row in rows) + CELL_BYTES - 1)
    except HootError as error:
        failure = error
    try:
        # After a failure, too: a table that is gone tells that nothing counts any more.
        owners = tables.get_all(table, [share.partition.place.row for share in shares], [keys.OWNER])
    except NoTable:
        _fail(shares, Fenced(f"the table {table} was deleted"))
    except HootError as error:
        _fail(shares, failure or error)
    else:
        if failure is not None:
            _fail(shares, failure)
            return
        for share in shares:
            share.confirm(owners.get(share.partition.place.row, {}).get(keys.OWNER))


def _fail(shares: Iterable[Share], error: HootError) -> None:
    for share in shares:
        share.fail(error)


def _answers(group: Sequence[Append], shares: Mapping[PartitionKey, Share]) -> list[HootError | None]:
    seen: dict[PartitionKey, int] = {}
    answers: list[HootError | None] = []
    for item in group:
        share, number = shares.get(item.key), seen.get(item.key, 0)
        seen[item.key] = number + 1
        if share is None:
            answers.append(StorageUnavailable(f"{item.key} is not open here"))
        else:
            answers.append(None if number < share.stored else share.refused.get(number, share.error))
    return answers
