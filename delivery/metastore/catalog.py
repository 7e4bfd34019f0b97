"""All of Hoot's metadata, by name: what the engine, the client and the subscriber work with.

A thin face over the managers of the MetaStore (`managers`), which keep whatever lasts, and over the few znodes that
live with a session (`records`): the hosts, and the listeners of subscriptions.

Blocking: a trio program calls it in a thread. Each call ends by the deadline of the ZooKeeper client or, where it reads
several times, by a few of them, with MetadataUnavailable. Every value that is read is checked; a foreign or damaged one
gives CorruptRecord with its path, or its table and key.
"""

from __future__ import annotations

from delivery.errors import CorruptRecord, HostsRunning, MetadataUnavailable
from delivery.metastore import records
from delivery.metastore.access import Managers
from delivery.metastore.archives import Archives
from delivery.metastore.ends import Ends
from delivery.metastore.managers import layout
from delivery.metastore.ops import Create, Delete, NodeExists, Op
from delivery.metastore.parked import Parked
from delivery.metastore.placed import CALL_SECONDS, PlacedMetaStore
from delivery.metastore.records import HostRecord
from delivery.metastore.snapshots import Snapshots
from delivery.metastore.tables.base import HBasePlace
from delivery.metastore.topics import Topics
from delivery.metastore.transactions import Transactions
from delivery.metastore.works import Works
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import check_name


def open_catalog(
    zk: ZooKeeperClient, place: HBasePlace | None = None, *, call_seconds: float = CALL_SECONDS
) -> Catalog:  # fmt: skip
    """The catalog of the cluster in this ZooKeeper; what of it is in HBase `place` tells, else its layout.

    Asks nobody: the session need not be started yet. `close` ends its watches and the connections to HBase, on which an
    exchange takes at most `call_seconds`; the session stays its owner's.
    """
    return Catalog(zk, PlacedMetaStore(zk, zk, place, call_seconds=call_seconds))


class Catalog(Archives, Ends, Snapshots, Parked, Topics, Transactions, Works):
    """The catalog over one ZooKeeper session and a MetaStore; as thread-safe as these."""

    def ensure_layout(self) -> None:
        """Format an empty cluster. Raises LayoutMismatch, nothing touched, when it is another program's."""
        layout.ensure_layout(self._zk, self._store)
        self._opened = Managers(self._store)

    def catch_up(self) -> None:
        """What this client reads afterwards is at least as new as this moment, also behind a ZooKeeper that lags.

        Raises MetadataUnavailable where there is nothing of Hoot, LayoutMismatch; BadVersion, to be tried again.
        """
        if not self.is_laid_out:
            raise MetadataUnavailable("this ZooKeeper holds nothing of Hoot")
        found = self._zk.get(layout.PATH)
        if found is not None:
            self._zk.set(layout.PATH, *found)  # a write, unlike a read, goes through the leader

    def check_at_rest(self) -> None:
        """Raises HostsRunning while any host is registered, readable or not."""
        names = self._zk.children(records.HOSTS)
        if names:
            raise HostsRunning(
                f"{len(names)} region hosts are registered, such as {names[0]}: stop each that `hoot host list` shows"
                " with SIGTERM and try again; one that was killed is registered until its session times out, some"
                " seconds later"
            )

    def format(self) -> None:
        """Wipe everything that lasts, then the layout; see `format_metastore`. Raises HostsRunning."""
        self.check_at_rest()
        self._zk.delete_tree(records.LISTENERS, below=True)
        layout.format_metastore(self._zk, self._store)
        self._opened = None

    def sweep(self) -> int:
        """Delete for good what the MetaStore keeps of entries that were removed long ago; how many."""
        return self._store.sweep()

    def close(self) -> None:
        """Watches are not called any more; nothing may be used after it. Leaves the session alone."""
        self._store.close()

    def register_host(self, record: HostRecord) -> None:
        """Say that a region host lives, for as long as this client's session does. Again, to replace the record.

        Raises MetadataUnavailable before `ensure_layout`.
        """
        path = records.host_path(check_name("host", record.host))
        value = records.encode(record)
        create: list[Op] = [Create(path, value, ephemeral=True)]
        refused = self._apply(create, path, value)
        if refused is not None and isinstance(refused.error, NodeExists):
            # An id is one process's: what is there is this host's own, perhaps under a session that is about to end.
            refused = self._apply([Delete(path), *create], path, value)
        if refused is not None:
            raise MetadataUnavailable(f"the host could not be registered: {refused.error.message}")

    def refresh_host(self, record: HostRecord) -> None:
        """A host's record anew, for what it tells of its load. Raises NoNode (a BadVersion) when it is not registered.

        Unlike a registration this wakes nobody who watches which hosts there are.
        """
        path = records.host_path(check_name("host", record.host))
        self._zk.set(path, records.encode(record))

    def hosts(self) -> list[HostRecord]:
        """The live region hosts, by id. Raises CorruptRecord."""
        found, corrupt = self.readable_hosts()
        if corrupt:
            raise corrupt[0]
        return found

    def readable_hosts(self) -> tuple[list[HostRecord], list[CorruptRecord]]:
        """The live region hosts, by id, and why what else is registered as one cannot be read."""
        paths = [records.host_path(name) for name in self._zk.children(records.HOSTS) or ()]
        found: list[HostRecord] = []
        corrupt: list[CorruptRecord] = []
        for path, value in zip(paths, self._zk.get_many(paths), strict=True):
            try:
                if value is not None:
                    found.append(_checked(path, records.decode(value[0], HostRecord, path)))
            except CorruptRecord as error:
                corrupt.append(error)
        return found, corrupt

    def host(self, host: str) -> HostRecord | None:
        """A live region host by its id, None when it is not live. Raises CorruptRecord."""
        path = records.host_path(check_name("host", host))
        record = self._get(path, HostRecord)
        return None if record is None else _checked(path, record)


def _checked(path: str, record: HostRecord) -> HostRecord:
    if records.host_path(record.host) != path or not 0 < record.port < 65_536 or not record.address:
        raise CorruptRecord(f"the value of {path} cannot be: host {record.host!r} at {record.address!r}:{record.port}")
    if record.partitions < 0 or record.messages_per_second < 0 or record.bytes_per_second < 0:
        raise CorruptRecord(f"the value of {path} cannot be: a load below zero")
    return record
