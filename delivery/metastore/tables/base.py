"""The interface of the MetaStore (seed 001): what every implementation promises, and the checks that all of them share.

The seed's result codes are typed errors here: NoKey, KeyExists, BadVersion, IllegalOperation, MetadataUnavailable for
its ServiceDown. An empty cursor gives an empty batch, not NoEntries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import ClassVar, Final, Self

import msgspec

from delivery.errors import Closed, CorruptRecord, HootError
from delivery.metastore.errors import IllegalOperation, NoKey
from delivery.metastore.tables.ranges import EVERYTHING, KeyRange, Order, key_range
from delivery.metastore.tables.values import ALL, NONE, Fields, Value, check_fields, check_key
from delivery.metastore.tables.versions import Version, Versioned, check_version
from delivery.model import check_name

WATCHES_MAX: Final = 10_000
"""Of one store at a time; more are refused with Throttled."""

Found = Versioned[Value] | CorruptRecord | None
"""What is under a key: an entry, one that cannot be read, or nothing."""


class WatchEvent(Enum):
    """What happened to a key."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


Watcher = Callable[[WatchEvent], None]
"""Called once, from a thread of the store's or from the one that made the change: it hands over and returns at once."""


ToWatch = tuple[str, Versioned[Value] | None, Watcher]
"""A key, the entry that was seen under it, and who is to be called."""
KeyWatcher = Callable[[str, WatchEvent], None]
"""A Watcher of many keys, called once for each of them."""


class HBasePlace(msgspec.Struct, frozen=True):
    """Which kinds of metadata are in HBase, in tables of which prefix, and its Thrift gateways."""

    kinds: tuple[str, ...]
    prefix: str
    gateways: str


class Put(msgspec.Struct, frozen=True):
    """Fields to put under a key, if its entry has `version`; see `MetastoreTable.put`."""

    key: str
    value: Value
    version: Version
    whole: bool = False


class Remove(msgspec.Struct, frozen=True):
    """A key to remove, if its entry has `version`."""

    key: str
    version: Version


Change = Put | Remove


class MetastoreTableItem(msgspec.Struct, frozen=True):
    """An entry that a cursor came by. Of one that cannot be read, `value` and `version` raise its CorruptRecord."""

    key: str
    found: Versioned[Value] | CorruptRecord

    @property
    def value(self) -> Value:
        """The fields that were asked for."""
        return self._read().value

    @property
    def version(self) -> Version:
        """The version that they were read at."""
        return self._read().version

    def _read(self) -> Versioned[Value]:
        if isinstance(self.found, CorruptRecord):
            raise self.found
        return self.found


class MetastoreCursor(ABC):
    """A walk over the entries of a table, for one user at a time; whoever opened it closes it.

    Without isolation: every key that is there from the opening to the end comes once, with a value and version that it
    had at the time of its batch; keys that come or go meanwhile may or may not. After an error, MetadataUnavailable
    for one, the next call goes on where the cursor was.
    """

    @abstractmethod
    def has_more_entries(self) -> bool:
        """Whether there is more to read. The next batch may be empty all the same, when others have just removed it."""

    @abstractmethod
    def read_entries(self, entries: int) -> list[MetastoreTableItem]:
        """The next entries: at most `entries`, fewer above some 4 MiB; empty at the end. IllegalOperation below 0."""

    @abstractmethod
    def read_keys(self, keys: int) -> list[str]:
        """The next keys alone, without looking at their entries: a hundred times as fast where keys are kept in order.

        At most `keys`, empty at the end; one that was removed a moment ago may be among them. IllegalOperation below 0.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what it holds; reading then raises ScannerClosed. Twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MetastoreTable(ABC):
    """A table without an order. Blocking and thread-safe; every call may raise MetadataUnavailable, and Closed."""

    def __init__(self, store: MetaStore, name: str) -> None:
        self.name = name
        self._store = store

    def get(self, key: str, fields: Fields = ALL, watch: Watcher | None = None) -> Versioned[Value]:
        """All, some or none of the fields of an entry, and its version. Raises NoKey, CorruptRecord.

        `watch` is called once, at the next change after this reading; also when NoKey is raised, at the creation.
        """
        self._check([key], fields)
        found = self._read([key], whole=watch is not None or fields != NONE)[0]
        if isinstance(found, CorruptRecord):
            raise found
        if watch is not None:
            self._arm([(key, found, watch)])
        if found is None:
            raise NoKey(f"table {self.name} has no {key!r}")
        return Versioned(found.value.project(fields), found.version)

    def get_many(self, keys: Sequence[str], fields: Fields = ALL, watch: KeyWatcher | None = None) -> list[Found]:
        """What is under each key, not as of one moment.

        `watch` is called with each key once, at its next change after this reading; not for those that cannot be read.
        Raises Throttled when not all of them can be watched: none is then.
        """
        self._check(keys, fields)
        read = self._read(keys, whole=watch is not None or fields != NONE)
        if watch is not None:
            seen = [(key, found) for key, found in zip(keys, read, strict=True) if not isinstance(found, CorruptRecord)]
            self._arm([(key, found, partial(watch, key)) for key, found in seen])
        return [
            Versioned(found.value.project(fields), found.version) if isinstance(found, Versioned) else found
            for found in read
        ]

    def put(self, key: str, value: Value, version: Version, *, whole: bool = False) -> Version:
        """Put fields under a key and give the entry's new version.

        With NEW the entry must not be there (KeyExists), with ANY it must (NoKey), otherwise it must have just this
        version (NoKey, BadVersion). The fields that `value` does not name stay, unless `whole`; those that are None
        there go. Also raises ValueTooLarge, TableFull, CorruptRecord when there is nothing sound to merge with;
        MetadataUnavailable says whether it may have been done.
        """
        return _version_or_raise(self.put_many([Put(key, value, version, whole)])[0])

    def put_many(self, puts: Sequence[Put]) -> list[Version | HootError]:
        """Many puts, each by itself, in few requests; one key's in their order. Gives each one's version or error."""
        for one in puts:
            if not isinstance(one.value, Value):
                raise IllegalOperation(f"{repr(one.value)[:60]} is no value to put under {str(one.key)[:60]!r}")
        return self._changed(puts)

    def remove(self, key: str, version: Version) -> None:
        """Remove an entry that has `version`, or ANY. Raises NoKey; BadVersion, which is also the answer to NEW."""
        _version_or_raise(self._changed([Remove(key, version)])[0])

    def remove_many(self, removes: Sequence[Remove]) -> list[HootError | None]:
        """Many removals, each by itself, in few requests. Gives None for what was removed, or its error."""
        return [one if isinstance(one, HootError) else None for one in self._changed(removes)]

    def open_cursor(self, *, fields: Fields = ALL) -> MetastoreCursor:
        """A cursor over the whole table."""
        self._check([], fields)
        return self._cursor(EVERYTHING, fields)

    def _changed(self, changes: Sequence[Change]) -> list[Version | HootError]:
        self._check([one.key for one in changes], ALL)
        for one in changes:
            check_version(one.version)
        return self._change(changes)

    def _check(self, keys: Sequence[str], fields: Fields) -> None:
        self._store.check_open()
        check_fields(fields)
        for key in keys:
            check_key(key)

    @abstractmethod
    def _read(self, keys: Sequence[str], *, whole: bool) -> list[Found]:
        """What is under each key; when not `whole`, with an empty value, and whatever the entry holds."""

    @abstractmethod
    def _change(self, changes: Sequence[Change]) -> list[Version | HootError]:
        """Do all, each by itself; a removal leaves Version.NEW."""

    @abstractmethod
    def _arm(self, watches: Sequence[ToWatch]) -> None:
        """Call each watcher once when its entry is, or already is, another than the one seen. Raises Throttled."""

    @abstractmethod
    def _cursor(self, keys: KeyRange, fields: Fields) -> MetastoreCursor:
        """A cursor over a range; over everything in any order when the table has none."""


class MetastoreScannableTable(MetastoreTable):
    """A table in the order of its keys."""

    def open_cursor(
        self,
        first: str | None = None,
        first_inclusive: bool = True,
        last: str | None = None,
        last_inclusive: bool = True,
        *,
        order: Order = Order.ASC,
        fields: Fields = ALL,
    ) -> MetastoreCursor:
        """A cursor from `first` to `last` in key order, or downwards with DESC; None is an open end.

        Raises IllegalOperation for ends the wrong way round. A range without keys gives an empty cursor.
        """
        self._check([], fields)
        return self._cursor(key_range(first, first_inclusive, last, last_inclusive, order), fields)


class MetaStore(ABC):
    """A place with tables. Blocking and thread-safe; nothing of it may be used after `close`."""

    name: ClassVar[str]
    """Of the implementation."""
    version: ClassVar[int]
    """Of the way in which it keeps its data."""

    def __init__(self) -> None:
        self.closed = False

    @property
    def place(self) -> HBasePlace | None:
        """What of it is in HBase beside the MetaStore of this name."""
        return None

    def prepare(self) -> None:
        """Make ready what tables need, before the layout names it for the first time. Twice is fine."""
        self.check_open()

    def check(self) -> None:
        """Look whether what the layout names is there. Raises LayoutMismatch."""
        self.check_open()

    @abstractmethod
    def create_table(self, name: str) -> MetastoreTable:
        """The table of that name, made when there is none. Raises InvalidRequest for the name."""

    @abstractmethod
    def create_scannable_table(self, name: str) -> MetastoreScannableTable:
        """The ordered table of that name, made when there is none. IllegalOperation when there is one without order."""

    @abstractmethod
    def drop_table(self, name: str) -> None:
        """Delete a table and all in it, damaged or not; one that is not there is fine. For a store at rest only."""

    def sweep(self) -> int:
        """Delete for good what was removed long ago, where that is kept; how many entries. For now and then."""
        self.check_open()
        return 0

    def close(self) -> None:
        """Free what it holds; watches are not called any more. Twice is fine."""
        self.closed = True

    def check_open(self) -> None:
        """Raises Closed after `close`."""
        if self.closed:
            raise Closed(f"the {self.name} MetaStore was closed")


def check_table(name: str) -> str:
    """`name` if a table can have it. Raises InvalidRequest."""
    return check_name("table", name)


def _version_or_raise(outcome: Version | HootError) -> Version:
    if isinstance(outcome, HootError):
        raise outcome
    return outcome
