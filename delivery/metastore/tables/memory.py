"""The reference implementation of the MetaStore: tables in this process's memory, one lock around each (seed 001)."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import ClassVar

from delivery.errors import BadVersion, HootError, InvalidRequest, Throttled
from delivery.metastore.errors import IllegalOperation, KeyExists, NoKey
from delivery.metastore.tables.base import (
    WATCHES_MAX,
    Change,
    Found,
    MetaStore,
    MetastoreCursor,
    MetastoreScannableTable,
    MetastoreTable,
    Put,
    ToWatch,
    Watcher,
    WatchEvent,
    check_table,
)
from delivery.metastore.tables.cursors import ENTRIES_AT_ONCE, BufferedCursor
from delivery.metastore.tables.ranges import KeyRange, Order
from delivery.metastore.tables.values import EMPTY, Fields, Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.tables.watching import event_between, tell

Event = tuple[Watcher, WatchEvent]


class TableData:
    """The entries of a table, shared by all stores on the same `MemoryData`. Its methods are called under `lock`."""

    def __init__(self, ordered: bool) -> None:
        self.ordered = ordered
        self.lock = threading.Lock()
        self.entries: dict[str, Versioned[Value]] = {}
        self.keys: list[str] = []
        """Sorted."""
        self.watchers: dict[str, list[tuple[MetaStore, Watcher]]] = {}

    def change(self, change: Change) -> tuple[Version, WatchEvent]:
        """Do one; gives the version that it leaves, and what happened."""
        found = self.entries.get(change.key)
        if isinstance(change, Put) and change.version == Version.NEW:
            if found is not None:
                raise KeyExists(f"there is already an entry {change.key!r}")
            self.entries[change.key] = Versioned(EMPTY.merge(change.value), Version(0))
            insort(self.keys, change.key)
            return Version(0), WatchEvent.CREATED
        if found is None:
            raise NoKey(f"there is no entry {change.key!r}")
        if change.version not in (Version.ANY, found.version):
            raise BadVersion(f"entry {change.key!r} has version {found.version.number}, not {change.version.number}")
        if isinstance(change, Put):
            merged = (EMPTY if change.whole else found.value).merge(change.value)
            self.entries[change.key] = Versioned(merged, Version(found.version.number + 1))
            return self.entries[change.key].version, WatchEvent.CHANGED
        del self.entries[change.key]
        del self.keys[bisect_left(self.keys, change.key)]
        return Version.NEW, WatchEvent.DELETED

    def watched(self, key: str, event: WatchEvent) -> list[Event]:
        """Take off those who watch a key, to be called outside the lock."""
        return [(watcher, event) for store, watcher in self.watchers.pop(key, []) if not store.closed]


class MemoryData:
    """What several stores share: each stands for a process on the same tables."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tables: dict[str, TableData] = {}


class MemoryMetaStore(MetaStore):
    """A MetaStore over `data`, its own when none is given."""

    name: ClassVar[str] = "memory"
    version: ClassVar[int] = 1

    def __init__(self, data: MemoryData | None = None) -> None:
        super().__init__()
        self._data = data or MemoryData()

    def create_table(self, name: str) -> MetastoreTable:
        """See MetaStore."""
        return MemoryTable(self, name, self._table(name, ordered=False))

    def create_scannable_table(self, name: str) -> MetastoreScannableTable:
        """See MetaStore."""
        return MemoryTable(self, name, self._table(name, ordered=True))

    def drop_table(self, name: str) -> None:
        """See MetaStore."""
        self.check_open()
        with self._data.lock:
            self._data.tables.pop(check_table(name), None)

    def _table(self, name: str, *, ordered: bool) -> TableData:
        self.check_open()
        with self._data.lock:
            table = self._data.tables.setdefault(check_table(name), TableData(ordered))
        if ordered and not table.ordered:
            raise IllegalOperation(f"table {name!r} is there already, and without an order")
        return table


class MemoryTable(MetastoreScannableTable):
    """A table of either kind: in memory both are ordered."""

    def __init__(self, store: MetaStore, name: str, data: TableData) -> None:
        super().__init__(store, name)
        self._data = data

    def _read(self, keys: Sequence[str], *, whole: bool) -> list[Found]:
        with self._data.lock:
            found = [self._data.entries.get(key) for key in keys]
        return [one if whole or one is None else Versioned(EMPTY, one.version) for one in found]

    def _change(self, changes: Sequence[Change]) -> list[Version | HootError]:
        outcomes: list[Version | HootError] = []
        events: list[Event] = []
        for change in changes:
            try:
                with self._data.lock:
                    version, event = self._data.change(change)
                    events += self._data.watched(change.key, event)
                outcomes.append(version)
            except (NoKey, KeyExists, BadVersion, InvalidRequest) as error:
                outcomes.append(error)
        for watcher, event in events:
            tell(watcher, event)
        return outcomes

    def _arm(self, watches: Sequence[ToWatch]) -> None:
        events: list[Event] = []
        with self._data.lock:
            if sum(map(len, self._data.watchers.values())) + len(watches) > WATCHES_MAX:
                raise Throttled(f"more than {WATCHES_MAX} keys would be watched")
            for key, seen, watch in watches:
                now = self._data.entries.get(key)
                if now == seen:
                    self._data.watchers.setdefault(key, []).append((self._store, watch))
                else:
                    events.append((watch, event_between(seen, now)))
        for watcher, event in events:
            tell(watcher, event)

    def _cursor(self, keys: KeyRange, fields: Fields) -> MetastoreCursor:
        return BufferedCursor(_SortedKeys(self._data, keys), lambda names: self.get_many(names, fields))


class _SortedKeys:
    """The keys of a range, looked up anew each time."""

    def __init__(self, data: TableData, keys: KeyRange) -> None:
        self._data = data
        self._range = keys
        self._last: str | None = None

    def more(self) -> Sequence[str] | None:
        """See Keys."""
        ascending = self._range.order is Order.ASC
        with self._data.lock:
            low, high = self._bounds(self._data.keys)
            cut = (
                slice(low, min(high, low + ENTRIES_AT_ONCE))
                if ascending
                else slice(max(low, high - ENTRIES_AT_ONCE), high)
            )
            keys = self._data.keys[cut]
        if not keys:
            return None
        keys = keys if ascending else keys[::-1]
        self._last = keys[-1]
        return keys

    def _bounds(self, keys: Sequence[str]) -> tuple[int, int]:
        wanted = self._range
        low, high = 0, len(keys)
        if wanted.low is not None:
            low = (bisect_left if wanted.low_inclusive else bisect_right)(keys, wanted.low)
        if wanted.high is not None:
            high = (bisect_right if wanted.high_inclusive else bisect_left)(keys, wanted.high)
        if self._last is not None and wanted.order is Order.ASC:
            low = bisect_right(keys, self._last)
        elif self._last is not None:
            high = bisect_left(keys, self._last)
        return low, high
