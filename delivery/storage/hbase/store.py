"""HBase as a message store: the interface over its tables, one thread per partition at a time."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Final

from delivery.errors import HootError, LayoutMismatch, StorageUnavailable
from delivery.hbase import Admin, NoTable, Tables
from delivery.model import Layout, QueueSettings
from delivery.storage.base import Append, PartitionKey, PartitionState
from delivery.storage.hbase import keys
from delivery.storage.hbase.group import commit
from delivery.storage.hbase.opening import fence, recover
from delivery.storage.hbase.partition import Partition
from delivery.storage.hbase.place import Place
from delivery.storage.opened import OpenedPartitions

PREFIX: Final = "hoot"
EPOCH_MAX: Final = 2**63 - 1

_log = logging.getLogger(__name__)


class HBaseStore(OpenedPartitions[Partition]):
    """A `MessageStore` in HBase, shared by all hosts that use the same HBase and prefix. Close it when done.

    A queue's durability changes nothing here: an append is acknowledged when the region servers' logs have it.
    """

    def __init__(
        self, tables: Tables, *, prefix: str = PREFIX, layout: Layout = "rows", admin: Admin | None = None
    ) -> None:
        """`layout` is that of new partitions of queues that ask for none. `tables` is closed with the store.

        New tables have a region per partition where there is an `admin`, else one that HBase splits as it grows.
        Raises InvalidRequest for a prefix that cannot be.
        """
        super().__init__()
        self._admin = admin
        self._tables, self._prefix, self._layout = tables, keys.check_prefix(prefix), layout
        self._name = secrets.token_hex(8)
        self._known: set[str] = set()
        """Tables that were found to be ours."""
        self._seen: set[str] = set()
        """The same, with those that are not there any more."""
        self._unsure: dict[PartitionKey, int] = {}
        """Epochs under which something was written that may still arrive: they are never opened again."""

    def open(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> PartitionState:
        """See `MessageStore.open`."""
        with self._lock(key):
            self._check_open(key, epoch, EPOCH_MAX)
            older = self._partitions.get(key)
            if older is not None and older.epoch <= epoch:
                self._leave(key)
            if self._unsure.get(key, 0) >= epoch:
                raise StorageUnavailable(f"{key} failed under epoch {epoch}: a newer one is needed to open it")
            partition = self._take(key, epoch, settings)
            self._partitions[key] = partition
            return partition.state()

    def prepare_release(self, key: PartitionKey) -> None:
        """See `MessageStore.prepare_release`: an opening reads little here, whatever came before."""

    def queues(self) -> list[tuple[str, str]]:
        """See `MessageStore.queues`."""
        found = (keys.queue_of(self._prefix, table) for table in self._tables.names())
        return [queue for queue in found if queue is not None]

    def delete(self, queue: str, generation: str) -> None:
        """See `MessageStore.delete`. Owners elsewhere are fenced by the table's absence."""
        for key in [key for key in self._partitions if (key.queue, key.generation) == (queue, generation)]:
            with self._lock(key):
                self._partitions.pop(key, None)
        table = keys.table_name(self._prefix, queue, generation)
        self._known.discard(table)
        self._seen.discard(table)
        self._tables.drop(table)

    def close(self) -> None:
        """See `MessageStore.close`."""
        super().close()
        self._tables.close()

    def _commit(self, group: Sequence[Append], partitions: Mapping[PartitionKey, Partition]) -> list[HootError | None]:
        return commit(self._tables, group, partitions)

    def _take(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> Partition:
        table = keys.table_name(self._prefix, key.queue, key.generation)
        self._ensure(table, settings.partitions)
        place = Place(self._tables, table, key)
        try:
            owner = fence(place, epoch, self._name, settings.layout or self._layout)
            partition = Partition(place, owner, recover(place, owner))
        except NoTable:
            self._known.discard(table)
            raise _gone(table) from None
        except StorageUnavailable:
            self._unsure[key] = epoch
            raise
        if settings.ttl_seconds is not None and not settings.archive_first:
            # Cells may have expired while nobody had it.
            partition.drop(settings, time.time_ns() // 1_000_000)
        return partition

    def _ensure(self, table: str, partitions: int) -> None:
        """See that the table is there and is one of ours. Raises LayoutMismatch, StorageUnavailable.

        NoTable for one that was there: it is not made anew, as if it had been empty.
        """
        if table in self._known:
            return
        try:
            families = self._tables.families(table)
        except NoTable:
            if table in self._seen:
                raise _gone(table) from None
            if self._admin is None:
                self._tables.create(table, keys.FAMILIES)
            else:
                self._admin.create(table, keys.FAMILIES, keys.splits(partitions))
            self._tables.wait_open(table)
            families = self._tables.families(table)
        if set(families) != set(keys.FAMILIES):
            raise LayoutMismatch(f"the table {table} of HBase is none of Hoot's: its families are {sorted(families)}")
        if lives := {life for life in families.values() if life is not None}:
            _log.warning("HBase removes what is in the table %s after %d s, whatever retention its queue has: say there"
                         " alter '%s', {NAME => FAMILY, TTL => 'FOREVER'} for %s", table, min(lives), table,
                         " and ".join(sorted(families)))  # fmt: skip
        self._known.add(table)
        self._seen.add(table)

    def _leave(self, key: PartitionKey) -> None:
        partition = self._partitions.pop(key, None)
        if partition is None:
            return
        partition.close()
        if isinstance(partition.broken, StorageUnavailable):
            self._unsure[key] = partition.epoch


def _gone(table: str) -> NoTable:
    return NoTable(f"the table {table} of HBase is gone, and what was in it: restore it, or delete the queue")
