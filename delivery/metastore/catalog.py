"""Everything that Hoot keeps in ZooKeeper, by name: what the engine, the client and the subscriber work with.

Blocking: a trio program calls it in a thread. Each call ends by the deadline of the ZooKeeper client or, where it reads
several times, by a few of them, with MetadataUnavailable. Every value that is read is checked; a foreign or damaged one
gives CorruptRecord with its path. See `records` for what is where.
"""

from __future__ import annotations

import contextlib

from delivery.errors import CorruptRecord, LayoutMismatch, MetadataUnavailable
from delivery.metastore import records
from delivery.metastore.checkpoints import Checkpoints
from delivery.metastore.ops import Create, Delete, NodeExists, Op
from delivery.metastore.partitions import Partitions
from delivery.metastore.queues import Queues
from delivery.metastore.records import HostRecord, Layout
from delivery.metastore.subscriptions import Subscriptions
from delivery.model import check_name


class Catalog(Queues, Partitions, Subscriptions, Checkpoints):
    """The catalog over one ZooKeeper session; as thread-safe as the session. Closes nothing."""

    def ensure_layout(self) -> None:
        """Make the folders of an empty tree. Raises LayoutMismatch, nothing touched, when it is another version's."""
        layout = self._get(records.LAYOUT, Layout)
        if layout is None:
            for path in (records.ROOT, records.HOSTS, records.QUEUES):
                with contextlib.suppress(NodeExists):
                    self._zk.create(path)
            with contextlib.suppress(NodeExists):
                self._zk.create(records.LAYOUT, records.encode(Layout()))
            layout = self._get(records.LAYOUT, Layout)
        if layout is None or layout.version != records.LAYOUT_VERSION:
            raise LayoutMismatch(
                f"ZooKeeper holds Hoot's data in layout {layout and layout.version}, and this program knows layout"
                f" {records.LAYOUT_VERSION}: use the program that wrote it, or another folder of ZooKeeper"
            )

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
