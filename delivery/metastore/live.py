"""One reading of the live hosts: who of them serves a partition, and who may be asked to take one."""

from __future__ import annotations

from collections.abc import Iterable

from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord

Address = tuple[str, int]


class LiveHosts:
    """The hosts that were registered at the time of reading."""

    __slots__ = ("_by_session", "able")

    def __init__(self, hosts: Iterable[HostRecord]) -> None:
        self._by_session = {(host.host, host.session): host for host in hosts}
        live = self._by_session.values()
        self.able = [host for host in live if not host.draining] or list(live)
        """Those that may be asked for a partition without an owner: not the draining ones, unless all are."""

    def at(self, address: Address) -> HostRecord | None:
        """The host that listens there."""
        return next((host for host in self._by_session.values() if (host.address, host.port) == address), None)

    def owner(self, record: OwnerInfo | None) -> HostRecord | None:
        """The partition's owner, if it lives with the session under which it took the partition."""
        return None if record is None else self._by_session.get((record.host, record.session))


def parse_address(text: str | None) -> Address | None:
    """`host:port`, as a NotOwner names the owner, as a pair; None for anything else."""
    host, colon, port = (text or "").rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65_536):
        return None
    return host.strip("[]"), int(port)
