"""The cursor over any source of keys, and removing all that one comes by (seed 001; Hedwig's MetastoreUtils)."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from delivery.errors import HootError, ScannerClosed
from delivery.metastore.errors import IllegalOperation, NoKey
from delivery.metastore.tables.base import (
    Found,
    MetastoreCursor,
    MetastoreTable,
    MetastoreTableItem,
    Remove,
)
from delivery.metastore.tables.versions import Version, Versioned

ENTRIES_AT_ONCE: Final = 64
"""Read together; as many as are in flight to ZooKeeper at a time."""
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""A batch ends after the reading that takes it above this: at most 36 MiB with the largest values there can be."""


class Keys(Protocol):
    """Where a cursor's keys come from, some at a time."""

    def more(self) -> Sequence[str] | None:
        """The next keys in order, perhaps none; None at the end. After an error it is asked for the same again."""
        ...


class BufferedCursor(MetastoreCursor):
    """A cursor that holds some keys in advance and reads their entries when these are asked for."""

    def __init__(self, keys: Keys, read: Callable[[Sequence[str]], list[Found]]) -> None:
        self._source: Keys | None = keys
        self._read = read
        self._keys: deque[str] = deque()
        self._ended = False

    def has_more_entries(self) -> bool:
        """See MetastoreCursor."""
        source = self._check_open()
        while not self._keys and not self._ended:
            keys = source.more()
            self._ended = keys is None
            self._keys.extend(keys or ())
        return bool(self._keys)

    def read_entries(self, entries: int) -> list[MetastoreTableItem]:
        """See MetastoreCursor."""
        if entries < 0:
            raise IllegalOperation(f"a batch has 0 entries or more, not {entries}")
        items: list[MetastoreTableItem] = []
        size = 0
        self._check_open()
        while len(items) < entries and size < BATCH_BYTES_MAX:
            try:
                found = self._next(min(entries - len(items), ENTRIES_AT_ONCE))
            except HootError:
                if not items:
                    raise
                break  # what was read counts; the next call says what is wrong
            if found is None:
                break
            items += found
            size += sum(one.found.value.size for one in found if isinstance(one.found, Versioned))
        return items

    def read_keys(self, keys: int) -> list[str]:
        """See MetastoreCursor."""
        if keys < 0:
            raise IllegalOperation(f"a batch has 0 keys or more, not {keys}")
        if not self.has_more_entries():
            return []
        return [self._keys.popleft() for _ in range(min(keys, len(self._keys)))]

    def close(self) -> None:
        """See MetastoreCursor."""
        self._source = None
        self._keys.clear()

    def _next(self, entries: int) -> list[MetastoreTableItem] | None:
        """The entries of the next keys but those that are gone; None at the end. Takes no key off when it fails."""
        if not self.has_more_entries():
            return None
        keys = list(itertools.islice(self._keys, entries))
        found = self._read(keys)
        for _ in keys:
            self._keys.popleft()
        return [MetastoreTableItem(key, one) for key, one in zip(keys, found, strict=True) if one is not None]

    def _check_open(self) -> Keys:
        if self._source is None:
            raise ScannerClosed("this cursor was closed")
        return self._source


def clean_table(table: MetastoreTable, entries_per_scan: int) -> None:
    """Remove every entry of a table, whatever its version and state, so many at a time.

    Others may put new ones meanwhile. Raises what the table raises; one that broke off can be done again.
    """
    if entries_per_scan < 1:
        raise IllegalOperation(f"a scan has 1 entry or more, not {entries_per_scan}")
    with table.open_cursor() as cursor:
        while cursor.has_more_entries():
            keys = cursor.read_keys(entries_per_scan)
            for outcome in table.remove_many([Remove(key, Version.ANY) for key in keys]):
                if isinstance(outcome, HootError) and not isinstance(outcome, NoKey):
                    raise outcome
