"""Looking at what the MetaStore holds, entry by entry, whatever it is: for operators.

A key's parts stand apart by 0x01 in the table; people see and write a slash, which is in no name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from delivery.errors import CorruptRecord, InvalidRequest, MetadataUnavailable
from delivery.metastore.catalog import Catalog
from delivery.metastore.errors import NoKey
from delivery.metastore.managers import layout, ownership, persistence, topics, transactions
from delivery.metastore.managers.records import SEPARATOR
from delivery.metastore.tables.base import Found, MetaStore, MetastoreScannableTable, MetastoreTable

UNORDERED: Final = (ownership.TABLE, persistence.TABLE, topics.TABLE, transactions.TABLE)
_ENTRIES: Final = 200
_AFTER_ALL: Final = chr(0x10FFFF)


class Entry(msgspec.Struct, frozen=True):
    """What is under a key; one that cannot be read is its error."""

    key: str
    found: Found


class Inspector:
    """Reads the tables of a cluster. Blocking; changes nothing, and makes no table that is not there."""

    def __init__(self, catalog: Catalog, store: MetaStore) -> None:
        """Raises MetadataUnavailable before the first start of a host, LayoutMismatch."""
        if not catalog.is_laid_out:
            raise MetadataUnavailable("this ZooKeeper holds nothing of Hoot yet: start a region host with `hoot serve`")
        self._store = store

    def tables(self) -> list[tuple[str, bool]]:
        """The tables by name, and whether they are in the order of their keys."""
        return [(name, name not in UNORDERED) for name in sorted(layout.TABLES)]

    def count(self, table: str) -> int:
        """How many entries a table has; all of its keys are listed for that."""
        with self._open(table).open_cursor() as cursor:
            count = 0
            while cursor.has_more_entries():
                count += len(cursor.read_keys(1000))
        return count

    def entries(self, table: str, limit: int, start: str | None = None, prefix: str = "") -> list[Entry]:
        """At most `limit` entries whose keys begin with `prefix`, from the key `start` on.

        Raises InvalidRequest for an unknown table, and for a start in a table that has no order.
        """
        return list(islice(self._entries(table, start, to_key(prefix)), limit))

    def read(self, table: str, key: str) -> Found:
        """What is under a key. Raises NoKey."""
        [found] = self._open(table).get_many([to_key(key)])
        if found is None:
            raise NoKey(f"table {table} has no entry {key!r}: `hoot metastore list {table}` shows them")
        return found

    def _entries(self, table: str, start: str | None, prefix: str) -> Iterator[Entry]:
        found = self._open(table)
        if table in UNORDERED:
            if start is not None:
                raise InvalidRequest(
                    f"table {table} has no order, so that no key comes after another: leave out --from"
                )
            cursor = found.open_cursor()
        else:
            assert isinstance(found, MetastoreScannableTable)
            first = max(prefix, to_key(start or ""))
            end = prefix + _AFTER_ALL if prefix else None
            cursor = found.open_cursor(first or None, True, None if end is None else max(first, end))
        with cursor:
            while cursor.has_more_entries():
                for item in cursor.read_entries(_ENTRIES):
                    if item.key.startswith(prefix):
                        yield Entry(to_shown(item.key), item.found)

    def _open(self, table: str) -> MetastoreTable:
        if table not in layout.TABLES:
            raise InvalidRequest(f"there is no table {table[:40]!r}: there are {', '.join(sorted(layout.TABLES))}")
        if table in UNORDERED:
            return self._store.create_table(table)
        return self._store.create_scannable_table(table)


def to_key(shown: str) -> str:
    """A key as a person writes it, as it is in the table."""
    return shown.replace("/", SEPARATOR)


def to_shown(key: str) -> str:
    """A key as a person reads it."""
    return key.replace(SEPARATOR, "/")


def fields_of(found: Found) -> dict[str, object]:
    """The fields of an entry as JSON values: what is JSON in them as that, other text as text, other bytes as hex.

    Raises CorruptRecord for an entry that cannot be read.
    """
    if isinstance(found, CorruptRecord):
        raise found
    return {} if found is None else {name: _readable(content or b"") for name, content in found.value.items()}


def _readable(content: bytes) -> object:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content.hex()
