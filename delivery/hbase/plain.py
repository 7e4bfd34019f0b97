"""What happybase does by itself, without anything of Hoot's around it: what a store over it is measured against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from time import perf_counter
from typing import Any

import happybase
from thriftpy2.thrift import TException

from delivery.hbase.errors import BROKEN, broken, refusal
from delivery.hbase.gateways import Address
from delivery.hbase.requests import Row
from delivery.hbase.tables import CALL_SECONDS, SCAN_ROWS


def put_rate(gateway: Address, table: str, rows: Sequence[Row]) -> float:
    """Rows per second, put in batches of SCAN_ROWS through one connection. Raises StorageUnavailable."""
    with _connected(gateway) as connection:
        begun = perf_counter()
        with connection.table(table).batch(batch_size=SCAN_ROWS) as batch:
            for row, cells in rows:
                batch.put(row, cells)
        return len(rows) / (perf_counter() - begun)


def scan_rate(gateway: Address, table: str, rows: Sequence[Row]) -> float:
    """Rows per second of a scan over rows that were put, first to last. Raises StorageUnavailable."""
    with _connected(gateway) as connection:
        begun = perf_counter()
        found = sum(1 for _ in connection.table(table).scan(row_start=rows[0][0], batch_size=SCAN_ROWS))
        assert found == len(rows)
        return found / (perf_counter() - begun)


@contextmanager
def _connected(gateway: Address) -> Iterator[Any]:
    host, port = gateway
    try:
        with closing(
            happybase.Connection(host, port, timeout=round(CALL_SECONDS * 1000), transport="framed", protocol="binary")
        ) as connection:
            yield connection
    except BROKEN as error:
        raise broken(error, f"{host}:{port}") from error
    except TException as error:
        raise refusal(error) from error
