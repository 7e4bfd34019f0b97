"""What operators ask and change about who owns what: hosts, the owners of partitions, moves and drains."""

from __future__ import annotations

import msgspec

from delivery.client.calls import Calls
from delivery.client.hosts import Owners
from delivery.errors import HostDraining, NoHost, UnknownHost
from delivery.metastore.catalog import Catalog
from delivery.metastore.live import LiveHosts
from delivery.metastore.records import HostRecord
from delivery.model import check_partition, near_names
from delivery.rpc.pool import Pool

MOVE_SECONDS = 30.0
"""How long a move is tried: the owner may change meanwhile, and opening a partition may mean to read its end."""


class OwnedBy(msgspec.Struct, frozen=True):
    """A partition and who owns it."""

    queue: str
    partition: int
    epoch: int
    """0 before the first owner."""
    host: HostRecord | None
    """The live owner; None when nobody owns it now."""


class Placement:
    """Over one catalog and the region hosts. Thread-safe; closes nothing. Every call raises MetadataUnavailable."""

    def __init__(self, catalog: Catalog, owners: Owners, calls: Calls, pool: Pool) -> None:
        self._catalog, self._owners, self._calls, self._pool = catalog, owners, calls, pool

    def hosts(self) -> list[HostRecord]:
        """The live region hosts. Raises CorruptRecord."""
        return self._catalog.hosts()

    def host(self, name: str) -> HostRecord:
        """A live host by its id, by the first letters of it if no other has the same, or by its host:port.

        Raises UnknownHost, naming what comes near.
        """
        live = self._catalog.hosts()
        found = [host for host in live if name in (host.host, host.host_port)]
        found = found or [host for host in live if name and host.host.startswith(name)]
        if len(found) == 1:
            return found[0]
        if not live:
            raise NoHost("no region host is registered: start one with `hoot serve`")
        if found:
            raise UnknownHost(f"{name!r} may be {' or '.join(host.host for host in found)}: give more of it")
        near = near_names(name, [name for host in live for name in (host.host, host.host_port)])
        hint = f"did you mean {' or '.join(near)}?" if near else "`hoot host list` shows the live ones"
        raise UnknownHost(f"there is no host {name!r}: {hint}")

    def owners(self, queue: str) -> list[OwnedBy]:
        """Every partition of a queue and its owner. Raises UnknownQueue, CorruptRecord."""
        record = self._catalog.queue(queue)
        live = LiveHosts(self._catalog.readable_hosts()[0])
        owners = self._catalog.owners(queue)
        found = []
        for number in range(record.settings.partitions):
            owner = owners.get(number)
            found.append(OwnedBy(queue, number, 0 if owner is None else owner.epoch, live.owner(owner)))
        return found

    def owner(self, queue: str, partition: int) -> OwnedBy:
        """One of `owners`. Raises UnknownPartition, too."""
        check_partition(partition, self._catalog.queue(queue).settings.partitions, queue)
        return self.owners(queue)[partition]

    def check_target(self, host: HostRecord) -> HostRecord:
        """The host, if it takes partitions. Raises HostDraining."""
        if host.draining:
            raise HostDraining(f"host {host.host} is draining: it takes no partitions")
        return host

    def move(self, queue: str, partition: int, host: HostRecord) -> None:
        """Have the partition's owner hand it over to `host`; returns when that has opened it.

        Raises UnknownQueue, UnknownPartition, UnknownHost, HostDraining, and the last error when time is up.
        """
        self.check_target(host)
        check_partition(partition, self._catalog.queue(queue).settings.partitions, queue)
        arguments = (queue, partition, host.host)
        self._calls.call(queue, partition, "movePartition", *arguments, timeout=MOVE_SECONDS)
        self._owners.learn(queue, partition, (host.address, host.port))

    def drain(self, host: HostRecord, *, draining: bool = True) -> int:
        """Have a host give away its partitions and take no more, or (False) take part again; how many it has now.

        Raises HostUnreachable, DeadlineExceeded.
        """
        return int(self._pool.call(host.address, host.port, "drainHost", draining))
