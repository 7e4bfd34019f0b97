"""The queues: one record each, in the order of their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delivery.errors import CorruptRecord, HootError, InvalidRequest, QueueExists, UnknownQueue
from delivery.metastore.errors import KeyExists, NoKey
from delivery.metastore.managers.records import AFTER, SEPARATOR, Codec
from delivery.metastore.ops import InDoubt
from delivery.metastore.records import QueueRecord
from delivery.metastore.tables.base import MetaStore, MetastoreScannableTable, Remove, Watcher
from delivery.metastore.tables.ranges import Order
from delivery.metastore.tables.values import NONE
from delivery.metastore.tables.versions import Version, Versioned
from delivery.model import check_name, check_settings

TABLE: Final = "queues"
PAGE_MAX: Final = 1000
NEAR_MAX: Final = 500
"""Names looked at on each side of one that is not there, for those that come near."""
_REMOVED_AT_ONCE: Final = 500


def _wrong(record: QueueRecord) -> str | None:
    try:
        check_name("queue", record.name)
        check_settings(record.settings)
    except InvalidRequest as error:
        return error.message
    return None


_CODEC = Codec("queue", QueueRecord, _wrong, TABLE)


class QueueManager:
    """Queue records. Blocking and thread-safe. What belongs to a queue is not known here."""

    def __init__(self, store: MetaStore) -> None:
        self._table = store.create_scannable_table(TABLE)

    def create_queue(self, record: QueueRecord) -> Version:
        """A new queue; gives its first version. Raises QueueExists."""
        try:
            return self._put(record, Version.NEW)
        except KeyExists:
            raise QueueExists(f"there is already a queue {record.name!r}") from None

    def read_queue(self, name: str, watch: Watcher | None = None) -> Versioned[QueueRecord] | None:
        """The queue and its version, None when there is none; `watch` as in a table. Raises CorruptRecord."""
        key = check_name("queue", name)
        try:
            found = self._table.get(key, watch=watch)
        except NoKey:
            return None
        return Versioned(_checked(key, _CODEC.decode(found.value, key)), found.version)

    def read_queues(self, names: Sequence[str]) -> list[QueueRecord | CorruptRecord | None]:
        """Many at a time; a damaged one is its error."""
        found = zip(names, self._table.get_many([check_name("queue", name) for name in names]), strict=True)
        return [_record(name, _CODEC.decode_found(one, name)) for name, one in found]

    def read_version(self, name: str) -> Version | None:
        """The version of a queue, damaged or not; None when there is none."""
        try:
            return self._table.get(check_name("queue", name), NONE).version
        except NoKey:
            return None

    def update_queue(self, record: QueueRecord, version: Version) -> Version:
        """Another record for the queue of this version; gives the new version. Raises BadVersion, UnknownQueue."""
        try:
            return self._put(record, version)
        except NoKey:
            raise UnknownQueue(f"there is no queue {record.name!r}") from None

    def delete_queue(self, name: str, version: Version) -> None:
        """Delete the queue of this version, damaged or not. Raises BadVersion, UnknownQueue."""
        try:
            self._table.remove(check_name("queue", name), version)
        except NoKey:
            raise UnknownQueue(f"there is no queue {name!r}") from None

    def list_queue_names(self, after: str | None = None, limit: int = PAGE_MAX) -> list[str]:
        """The next names in their order, those behind `after`, at most `limit`; empty at the end."""
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidRequest(f"a page has 1 to {PAGE_MAX} queues, not {limit}")
        return read_names(self._table, after, None, limit)

    def names_around(self, name: str) -> list[str]:
        """The names next to `name` in their order, NEAR_MAX on each side: enough to tell what may have been meant."""
        return names_around(self._table, name, None, None)

    def _put(self, record: QueueRecord, version: Version) -> Version:
        try:
            return self._table.put(record.name, _CODEC.encode(record), version, whole=True)
        except InDoubt:
            found = self.read_queue(record.name)
            if found is None or found.value != record:
                raise
            return found.version


def read_names(table: MetastoreScannableTable, after: str | None, end: str | None, limit: int) -> list[str]:
    """The keys behind `after` and below `end`, at most `limit`."""
    keys: list[str] = []
    with table.open_cursor(after, False, end, False) as cursor:
        while len(keys) < limit and cursor.has_more_entries():
            keys += cursor.read_keys(limit - len(keys))
    return keys


def remove_all(table: MetastoreScannableTable, queue: str) -> None:
    """Remove every entry of a queue that ends, damaged ones and those that nobody has."""
    with table.open_cursor(queue + SEPARATOR, True, queue + AFTER, False, fields=NONE) as cursor:
        while cursor.has_more_entries():
            removes = [Remove(key, Version.ANY) for key in cursor.read_keys(_REMOVED_AT_ONCE)]
            for outcome in table.remove_many(removes):
                if isinstance(outcome, HootError) and not isinstance(outcome, NoKey):
                    raise outcome


def names_around(table: MetastoreScannableTable, key: str, low: str | None, high: str | None) -> list[str]:
    """The keys next to `key` between two ends, at most NEAR_MAX on each side."""
    before: list[str] = []
    with table.open_cursor(key, True, low, True, order=Order.DESC) as cursor:
        while len(before) < NEAR_MAX and cursor.has_more_entries():
            before += cursor.read_keys(NEAR_MAX - len(before))
    return [*reversed(before), *read_names(table, key, high, NEAR_MAX)]


def _checked(key: str, record: QueueRecord) -> QueueRecord:
    if record.name != key:
        raise CorruptRecord(f"entry {key!r} of table {TABLE} is that of another queue, {record.name!r}")
    return record


def _record(key: str, found: Versioned[QueueRecord] | CorruptRecord | None) -> QueueRecord | CorruptRecord | None:
    if not isinstance(found, Versioned):
        return found
    try:
        return _checked(key, found.value)
    except CorruptRecord as error:
        return error
