"""The calls to HBase that Hoot needs, each with its deadline and with what may be said after a failure.

Everything but `check_and_put` gives the same result when it is done twice, so it is asked again, of another gateway
where there is one, until the deadline: puts overwrite cells with the same bytes, scans and gets read, and a table that
is already there, or gone, is what was wanted.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

import tenacity
from happybase.batch import BatchMutation, Mutation

from delivery import logs
from delivery.errors import HootError, StorageUnavailable, UnknownOutcome
from delivery.hbase.errors import CellTooLarge, Denied, Lost, NoTable, Passing, TableExists, Unreached
from delivery.hbase.gateways import Address
from delivery.hbase.pool import Pool
from delivery.hbase.requests import Cells, Row, in_requests, prefixed, scan_filter

CALL_SECONDS: Final = 30.0
"""A region server that dies stalls its regions for 9 to 14 s, and a gateway waits for that without a word."""
CONNECTIONS_MAX: Final = 16
PUTS_AT_ONCE: Final = 4
"""Requests of all puts together that are on their way; more kept nobody busier on two cores."""
SCAN_ROWS: Final = 1000

log = logs.logger(__name__)

_T = TypeVar("_T")
_SAID_SECONDS: Final = 30.0
"""Between two lines of the log about what is tried again: all that is under way would have one."""
_FOREVER: Final = 2**31 - 1
_TTL: Final = b"_ttl"
"""The attribute of HBase's own client for the life of the cells of a put, in ms as eight big-endian bytes."""
_FAMILY: Final = {"max_versions": 1, "bloom_filter_type": "ROW", "block_cache_enabled": True}


class Tables:
    """HBase's tables. Thread-safe; close it when done.

    Every method raises StorageUnavailable when HBase cannot do it in time, NoTable when the table is not there, and
    InvalidRequest for what HBase will never take.
    """

    def __init__(
        self, gateways: Sequence[Address], *, connections_max: int = CONNECTIONS_MAX, call_seconds: float = CALL_SECONDS
    ) -> None:
        self._pool = Pool(gateways, connections_max=connections_max, call_seconds=call_seconds)
        self._putting = ThreadPoolExecutor(PUTS_AT_ONCE, "hbase-put")
        """Its threads begin with the first put that needs them."""
        self._call_seconds = call_seconds
        self._said_at = -math.inf

    def names(self) -> list[str]:
        """Every table."""
        return [name.decode() for name in self._again(lambda connection: connection.tables())]

    def lacks(self, namespace: str) -> bool:
        """Whether there is no such namespace, as far as HBase 2 tells it whoever is allowed to look."""
        try:
            return not self.get("hbase:namespace", namespace.encode(), [b"info"])
        except Unreached:
            raise
        except HootError:
            return False

    def takes(self, size: int) -> bool:
        """Whether a gateway takes a request of so many bytes: above its largest frame it closes the connection."""

        def ask(connection: Any) -> None:
            connection.client.isTableEnabled(bytes(size))

        try:
            self._ask(ask, Unreached)
        except Lost:
            return False
        except HootError:
            pass  # it has read the request, and no table has such a name
        return True

    def refuses(self, table: str, row: bytes, column: bytes, size: int) -> CellTooLarge | None:
        """Why HBase would not take a cell of `size` bytes there, None where it would. Nothing is put."""
        never = (column, secrets.token_bytes(16))  # the size is looked at first, and then another value found
        try:
            self.check_and_put(table, row, never, column, bytes(size))
        except CellTooLarge as error:
            return error
        return None

    def families(self, table: str) -> dict[str, int | None]:
        """The column families of a table, with the seconds after which HBase removes their cells; None for never."""
        found = self._again(lambda connection: connection.table(table).families())
        lives = {name.decode(): family["time_to_live"] for name, family in found.items()}
        return {name: life if 0 < life < _FOREVER else None for name, life in lives.items()}

    def create(self, table: str, families: Sequence[str], compression: str = "NONE") -> None:
        """Make a table; one of that name may be there, or another host may be about to make it."""
        made = {name: {**_FAMILY, "compression": compression} for name in families}

        with contextlib.suppress(TableExists):
            self._again(lambda connection: connection.create_table(table, made))

    def wait_open(self, table: str) -> None:
        """Return when a table that was made is open. Raises NoTable when it is not there after all."""

        def look(connection: Any) -> None:
            if not connection.is_table_enabled(table):
                raise Passing(f"the table {table} is not open yet")

        self._ask(look, Unreached, Lost, Passing, NoTable)

    def drop(self, table: str) -> None:
        """Delete a table with all that is in it; it may be gone already."""

        def drop(connection: Any) -> None:
            if connection.is_table_enabled(table):
                connection.disable_table(table)
            connection.delete_table(table)

        with contextlib.suppress(NoTable):
            if table in self.names():
                self._again(drop)

    def get(self, table: str, row: bytes, columns: Sequence[bytes]) -> Cells:
        """Some cells of a row; without those that are not there."""
        return self._again(lambda connection: connection.table(table).row(row, columns))

    def get_all(self, table: str, rows: Sequence[bytes], columns: Sequence[bytes]) -> dict[bytes, Cells]:
        """The same of several rows; without those that have none of the cells."""
        return self._of_many(table, lambda connection: dict(connection.table(table).rows(rows, columns)))

    def put(self, table: str, rows: Sequence[Row], *, ttl_ms: int | None = None) -> None:
        """Put rows, in as few requests as fit. Each row is put as a whole; of several rows any part may be there
        after an error. `ttl_ms` is the life of these cells, counted from when HBase takes them.
        """
        attributes = {} if ttl_ms is None else {_TTL: struct.pack(">q", ttl_ms)}
        put = partial(self._put, table, attributes)
        parts = list(in_requests(rows))
        if len(parts) == 1:
            put(rows)
            return
        try:
            underway = [self._putting.submit(put, part) for part in parts]
        except RuntimeError:
            raise StorageUnavailable("the connections to HBase are closed") from None
        wait(underway)  # so that none is on its way any more when an error is told
        for one in underway:
            one.result()

    def touch(self, table: str, row: bytes, column: bytes) -> tuple[int, int]:
        """Put an empty cell; when it was put before, 0 for never, and now, in ms by the clock of the row's server."""

        def put_at(connection: Any) -> int:
            found = connection.table(table).row(row, [column], include_timestamp=True)
            return int(found[column][1]) if column in found else 0

        before = self._again(put_at)
        self.put(table, [(row, {column: b""})])
        return before, self._again(put_at)

    def expire(self, table: str, column: bytes, prefix: bytes, before_ms: int) -> int:
        """Delete what was put in a column before a time and begins with `prefix`, unless it was replaced; how many.

        A deletion also hides what is put later by a server whose clock is before that time.
        """
        wanted = b"ValueFilter(=, %b) AND KeyOnlyFilter()" % prefixed(prefix)

        def scan(connection: Any) -> list[bytes]:
            found = connection.table(table).scan(
                row_start=start, columns=[column], timestamp=before_ms, filter=wanted, limit=SCAN_ROWS
            )
            return [row for row, _ in found]

        start, count = b"", 0
        while rows := self._again(scan):
            gone = [BatchMutation(row=row, mutations=[Mutation(isDelete=True, column=column)]) for row in rows]
            self._again(partial(_delete_until, table=table, batches=gone, last_ms=before_ms - 1))
            start, count = rows[-1] + b"\0", count + len(rows)
        return count

    def erase(self, table: str, rows: Sequence[bytes], families: Sequence[str]) -> None:
        """Delete the cells of some families from rows."""
        for at in range(0, len(rows), SCAN_ROWS):
            batches = [
                BatchMutation(row=row, mutations=[Mutation(isDelete=True, column=name.encode()) for name in families])
                for row in rows[at : at + SCAN_ROWS]
            ]
            self._mutate(table, batches, {})

    def check_and_put(
        self, table: str, row: bytes, check: tuple[bytes, bytes | None], column: bytes, value: bytes
    ) -> bool:
        """Put one cell if another cell of that row (or the same) has this value, or is absent for None.

        Raises UnknownOutcome when the answer was lost: read what is there.
        """
        checked, expected = check

        def put(connection: Any) -> bool:
            change = Mutation(column=column, value=value)
            return bool(connection.client.checkAndPut(table.encode(), row, checked, expected, change, {}))

        try:
            return self._ask(put, Unreached)
        except (NoTable, Unreached, Denied):
            raise
        except StorageUnavailable as error:  # the gateway's own call to HBase may have been lost as well
            raise UnknownOutcome(error.message) from error

    def settle(self, table: str, row: bytes, column: bytes, value: bytes) -> bytes:
        """The value of a cell, which is put if there is none: of many who do so at once all get the same."""
        with contextlib.suppress(UnknownOutcome):  # what is there afterwards counts
            if self.check_and_put(table, row, (column, None), column, value):
                return value
        found = self.get(table, row, [column]).get(column)
        if found is None:
            raise StorageUnavailable(f"a cell of {table} was put or not, and is not there")
        return found

    def scan(
        self,
        table: str,
        start: bytes,
        stop: bytes,
        columns: Sequence[bytes],
        *,
        limit: int | None = None,
        rows_at_once: int = SCAN_ROWS,
        keys_only: bool = False,
        but: bytes | None = None,
    ) -> list[Row]:
        """The rows from `start` up to but without `stop` that have any of `columns`; downwards if that is below it.

        A column is `family:qualifier`, or `family` without a colon for all of a family.

        They are all held in memory: `limit` or the bounds must see to that. `rows_at_once` is what a gateway gathers
        for one answer; with `keys_only` the values are left out. Cells whose value begins with `but` are not there.
        """
        wanted = scan_filter(keys_only=keys_only, but=but)
        at_once = min(rows_at_once, limit or rows_at_once)

        def scan(connection: Any) -> list[Row]:
            found = connection.table(table).scan(
                row_start=start, row_stop=stop, columns=columns, batch_size=at_once, limit=limit, filter=wanted,
                reverse=start > stop,
            )  # fmt: skip
            return list(found)

        return self._again(scan)

    def close(self) -> None:
        """Close the connections. Closing twice is fine."""
        self._pool.close()
        self._putting.shutdown()

    def _put(self, table: str, attributes: Cells, rows: Sequence[Row]) -> None:
        batches = [
            BatchMutation(row=row, mutations=[Mutation(column=c, value=v) for c, v in cells.items()])
            for row, cells in rows
        ]
        self._mutate(table, batches, attributes)

    def _mutate(self, table: str, batches: list[Any], attributes: Cells) -> None:
        self._of_many(table, lambda connection: connection.client.mutateRows(table.encode(), batches, attributes))

    def _of_many(self, table: str, work: Callable[[Any], _T]) -> _T:
        """What is done to several rows: there HBase does not say that it is their table that is gone."""
        try:
            return self._again(work)
        except StorageUnavailable as error:
            if type(error) is StorageUnavailable:
                self.families(table)
            raise

    def _again(self, work: Callable[[Any], _T]) -> _T:
        """Do what may be done twice, until it was done or the deadline is over."""
        return self._ask(work, Unreached, Lost, Passing)

    def _ask(self, work: Callable[[Any], _T], *again: type[HootError]) -> _T:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(again),
            stop=tenacity.stop_after_delay(self._call_seconds),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
            before_sleep=self._say,
            reraise=True,
        )
        found: _T = retrying(self._pool.call, work)
        return found

    def _say(self, state: tenacity.RetryCallState) -> None:
        """That something is tried again, at once: for whoever waits, it looks like nothing for a long time."""
        error = state.outcome.exception() if state.outcome is not None else None
        now = monotonic()
        if isinstance(error, Unreached | Lost) and now - self._said_at > _SAID_SECONDS:
            self._said_at = now
            log.warning("%s; what is asked of HBase is tried for up to %g s", error, self._call_seconds)


def _delete_until(connection: Any, *, table: str, batches: list[Any], last_ms: int) -> None:
    connection.client.mutateRowsTs(table.encode(), batches, last_ms, {})
