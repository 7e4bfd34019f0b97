"""What the contract tests of the MetaStore share."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from typing import Any

from delivery.errors import HootError
from delivery.metastore.errors import NoKey
from delivery.metastore.tables.base import (
    MetaStore,
    MetastoreCursor,
    MetastoreTable,
    MetastoreTableItem,
    Put,
)
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned

StartStore = Callable[[], MetaStore]
NEW, ANY = Version.NEW, Version.ANY
LETTERS = string.ascii_lowercase[5:24]  # f to x
FULL = Value({"name": b"first", "counter": b"7"})
WRONG = Version(99)


def refused(call: Callable[..., object], *args: Any, **options: Any) -> type[HootError] | None:
    try:
        call(*args, **options)
    except HootError as error:
        return type(error)
    return None


def found(table: MetastoreTable, key: str) -> Versioned[Value] | None:
    """What is under a key, None when nothing is."""
    try:
        return table.get(key)
    except NoKey:
        return None


def items(cursor: MetastoreCursor, batch: int = 7) -> list[MetastoreTableItem]:
    """All that a cursor gives, read in batches."""
    everything: list[MetastoreTableItem] = []
    with cursor:
        while cursor.has_more_entries():
            part = cursor.read_entries(batch)
            assert len(part) <= batch
            everything += part
        assert cursor.read_entries(batch) == [], "the end is an empty batch"
    return everything


def keys(cursor: MetastoreCursor, batch: int = 7) -> list[str]:
    return [item.key for item in items(cursor, batch)]


def fill(table: MetastoreTable, names: Iterable[str]) -> None:
    outcomes = table.put_many([Put(name, Value({"name": name.encode(), "counter": b"1"}), NEW) for name in names])
    assert set(outcomes) == {Version(0)}
