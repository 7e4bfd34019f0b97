"""A catalog that is opened when it is asked for the first time.

A task knows from the plan who owns what it reads, and a session with ZooKeeper costs that two writes to its disks: a
stream with some tasks several times a second would have it do little else. So ZooKeeper is asked when the owner is
another one meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock
from typing import Final

from delivery.errors import CorruptRecord
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord
from delivery.metastore.zookeeper import ZooKeeperClient


class LateCatalog:
    """Where owners, hosts and the manager of transactions are looked up. Thread-safe; close it when done."""

    def __init__(self, begin: Callable[[], ZooKeeperClient]) -> None:
        """`begin` gives a session that is open. All below raise what it raises."""
        self._begin: Final = begin
        self._opening, self._lock = ExitStack(), Lock()
        self._catalog: Catalog | None = None

    def get(self) -> Catalog:
        """The catalog."""
        with self._lock:
            if self._catalog is None:
                session = self._begin()
                self._opening.callback(session.stop)
                self._catalog = open_catalog(session)
                self._opening.callback(self._catalog.close)
            return self._catalog

    def readable_owners(self, queue: str) -> tuple[dict[int, OwnerInfo], list[CorruptRecord]]:
        """See `OwnerCatalog`."""
        return self.get().readable_owners(queue)

    def partition(self, queue: str, partition: int) -> tuple[OwnerInfo | None, int]:
        """See `OwnerCatalog`."""
        return self.get().partition(queue, partition)

    def readable_hosts(self) -> tuple[list[HostRecord], list[CorruptRecord]]:
        """See `OwnerCatalog`."""
        return self.get().readable_hosts()

    def transaction_manager(self) -> OwnerInfo | None:
        """See `ManagerCatalog`."""
        return self.get().transaction_manager()

    def close(self) -> None:
        """End the session, if one was begun."""
        self._opening.close()
