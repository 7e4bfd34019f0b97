"""What the tests of the tables in ZooKeeper share."""

from __future__ import annotations

import json
from collections.abc import Sequence

from delivery.metastore.tables import pages
from delivery.metastore.tables.base import (
    MetastoreCursor,
    MetastoreScannableTable,
    MetastoreTable,
    MetastoreTableItem,
    Put,
)
from delivery.metastore.tables.ranges import Order
from delivery.metastore.tables.values import NONE, Value
from delivery.metastore.tables.versions import Version
from tests.metastore_tables import NEW
from tests.znodes import FakeZNodes

ROOT = "/hoot/metastore/tables/t"
SMALL = Value({"a": b"1"})


def names(count: int, width: int = 40) -> list[str]:
    return [f"{at:0{width}}" for at in range(count)]


def put_all(table: MetastoreTable, keys: Sequence[str]) -> None:
    assert set(table.put_many([Put(key, SMALL, NEW) for key in keys])) <= {Version(0)}


def rest_of(cursor: MetastoreCursor) -> list[MetastoreTableItem]:
    found: list[MetastoreTableItem] = []
    while cursor.has_more_entries():
        found += cursor.read_entries(1000)
    return found


def all_keys(table: MetastoreScannableTable, order: Order = Order.ASC) -> list[str]:
    with table.open_cursor(order=order, fields=NONE) as cursor:
        return [item.key for item in rest_of(cursor)]


def check_pages(zk: FakeZNodes, expected: Sequence[str]) -> list[str]:
    """The pages cover all keys without gap or overlap, list exactly the entries, and are within their size."""
    lows = sorted(zk.children(f"{ROOT}/order") or [])
    listed: list[str] = []
    for low, after in zip(lows, [*lows[1:], None], strict=True):
        data = (zk.get(f"{ROOT}/order/{low}") or (b"", 0))[0]
        page = json.loads(data)
        assert page["high"] == (None if after is None else after[1:])
        assert len(data) <= pages.PAGE_BYTES + 600
        assert page["keys"] == sorted(page["keys"])
        listed += page["keys"]
    assert listed == sorted(expected)
    entries = [
        key for bucket in zk.children(f"{ROOT}/keys") or [] for key in zk.children(f"{ROOT}/keys/{bucket}") or []
    ]
    assert sorted(entries) == sorted(expected)
    return lows
