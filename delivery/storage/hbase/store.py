"""HBase as a message store: the interface over its tables, one thread per partition at a time."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from delivery import wall
from delivery.errors import ConfigError, HootError, StorageUnavailable
from delivery.hbase import Admin, NoTable, Tables
from delivery.model import Layout, QueueSettings
from delivery.storage.base import Append, PartitionKey, PartitionState
from delivery.storage.hbase import keys
from delivery.storage.hbase.group import commit
from delivery.storage.hbase.making import Making
from delivery.storage.hbase.opening import fence, recover
from delivery.storage.hbase.partition import Partition
from delivery.storage.hbase.place import Place
from delivery.storage.homes import OwnRegister, Register
from delivery.storage.opened import OpenedPartitions

PREFIX: Final = "hoot"
EPOCH_MAX: Final = 2**63 - 1


class HBaseStore(OpenedPartitions[Partition]):
    """A `MessageStore` in HBase, shared by all hosts that use the same HBase and prefix. Close it when done.

    A queue's durability changes nothing here: an append is acknowledged when the region servers' logs have it.
    """

    def __init__(
        self, tables: Tables, *, prefix: str = PREFIX, layout: Layout = "rows", admin: Admin | None = None,
        register: Register | None = None,
    ) -> None:  # fmt: skip
        """`layout` is that of new partitions of queues that ask for none. `tables` is closed with the store.

        New tables have a region per partition where there is an `admin`, else one that HBase splits as it grows. The
        `register` tells which tables were made; without one this store knows of its own alone.
        Raises InvalidRequest for a prefix that cannot be.
        """
        super().__init__()
        self._tables, self._prefix, self._layout = tables, keys.check_prefix(prefix), layout
        self._making = Making(tables, admin, OwnRegister() if register is None else register)
        self._name = secrets.token_hex(8)
        self._unsure: dict[PartitionKey, int] = {}
        """Epochs under which something was written that may still arrive: they are never opened again."""

    def open(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> PartitionState:
        """See `MessageStore.open`. Raises what a Register does, too."""
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

    def look_around(self) -> None:
        """At the start: whether HBase answers, and takes what is to be stored; what it would refuse is warned of.

        Raises StorageUnavailable, ConfigError for a namespace that is not there.
        """
        namespace = keys.namespace_of(self._prefix)
        if namespace and self._tables.lacks(namespace):
            raise ConfigError(
                f"HBase has no namespace {namespace!r}, which hbase_prefix names: say there create_namespace"
                f" '{namespace}'"
            )
        for queue, generation in self.queues()[:1]:
            self._making.look(keys.table_name(self._prefix, queue, generation))

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
        self._making.forget(table)
        self._tables.drop(table)

    def close(self) -> None:
        """See `MessageStore.close`."""
        super().close()
        self._tables.close()

    def append_at_once(self, _: Append, /) -> None:
        """See `MessageStore.append_at_once`: a request over the network takes its time."""

    def _commit(self, group: Sequence[Append], partitions: Mapping[PartitionKey, Partition]) -> list[HootError | None]:
        return commit(self._tables, group, partitions)

    def _take(self, key: PartitionKey, epoch: int, settings: QueueSettings) -> Partition:
        table = keys.table_name(self._prefix, key.queue, key.generation)
        word = self._making.ensure(table, key, settings.partitions)
        place = Place(self._tables, table, key)
        try:
            owner = fence(place, epoch, self._name, settings.layout or self._layout, word)
            partition = Partition(place, owner, recover(place, owner))
            partition.begin(settings, wall.ms())
        except NoTable:
            self._making.forget(table)
            self._making.ensure(table, key, settings.partitions)  # raises when it is gone
            raise
        except StorageUnavailable:
            self._unsure[key] = epoch
            raise
        return partition

    def _leave(self, key: PartitionKey) -> None:
        partition = self._partitions.pop(key, None)
        if partition is None:
            return
        partition.close()
        if isinstance(partition.broken, StorageUnavailable):
            self._unsure[key] = partition.epoch
