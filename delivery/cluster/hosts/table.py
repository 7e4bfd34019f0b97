"""The live hosts as this host knows them: a mirror of their records, kept true by one watch on the folder of hosts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import trio

from delivery.cluster.bell import Doorbell
from delivery.errors import CorruptRecord, HootError
from delivery.metastore import records
from delivery.metastore.records import HostRecord

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 1.0
_UNKNOWN_SECONDS: Final = 0.05
"""How often the records are read at most because somebody named a host that is not among them."""


class Watching(Protocol):
    """ZooKeeper's watches (metastore.zookeeper.ZooKeeperClient), as used here. Hints come from other threads."""

    def watch_children(self, path: str, hint: Callable[[], None]) -> None:
        """Give a hint now and whenever the children of `path` may have changed."""


class HostRecords(Protocol):
    """Where hosts are registered (metastore.catalog.Catalog); blocking."""

    def readable_hosts(self) -> tuple[list[HostRecord], list[CorruptRecord]]:
        """The live hosts, and what cannot be read."""


class HostTable:
    """The hosts' records in memory, this host's own included. For the trio thread; `run` owns the watching.

    Reading costs ZooKeeper one request and one for each host. It happens when a host comes or goes, every
    `reconcile_seconds`, and when somebody asks for loads that are `recent`.
    """

    def __init__(self, watching: Watching, catalog: HostRecords, host: str, reconcile_seconds: float) -> None:
        """`host` is the id of this one."""
        self._watching, self._catalog, self.me = watching, catalog, host
        self._reconcile_seconds = reconcile_seconds
        self._live: dict[str, HostRecord] = {}
        self._dead: set[tuple[str, int]] = set()
        self._read_at = self._failed_at = float("-inf")
        self._reading = trio.Lock()
        self._on_gone: list[Callable[[HostRecord], None]] = []
        self._on_read: list[Callable[[], None]] = []
        self._complained: set[str] = set()

    def on_gone(self, callback: Callable[[HostRecord], None]) -> None:
        """Call `callback` when another host's session has ended, or its machine says that nobody listens there."""
        self._on_gone.append(callback)

    def on_read(self, callback: Callable[[], None]) -> None:
        """Call `callback` each time the records were read."""
        self._on_read.append(callback)

    @property
    def all(self) -> list[HostRecord]:
        """Every host that lives, this one included when it is registered."""
        return [host for host in self._live.values() if (host.host, host.session) not in self._dead]

    @property
    def others(self) -> list[HostRecord]:
        """Every other host that lives."""
        return [host for host in self.all if host.host != self.me]

    def find(self, host: str) -> HostRecord | None:
        """A live host."""
        found = self._live.get(host)
        return None if found is None or (host, found.session) in self._dead else found

    def lives(self, host: str, session: int) -> bool:
        """Whether a host lives under that session."""
        found = self.find(host)
        return found is not None and found.session == session

    def is_registered(self, host: str, session: int) -> bool:
        """Whether a host's session goes on in ZooKeeper, dead or alive."""
        found = self._live.get(host)
        return found is not None and found.session == session

    def mark(self, record: HostRecord, *, dead: bool) -> None:
        """Connections to a registered host are refused, or no longer."""
        key = (record.host, record.session)
        if not dead:
            self._dead.discard(key)
        elif key not in self._dead and self.is_registered(*key):
            self._dead.add(key)
            self._gone(record)

    async def other_at(self, address: str) -> HostRecord | None:
        """The live host at that host:port, if it is another one. Who is not known may have come a moment ago."""
        found = self._other_at(address)
        if found is None:
            await self.recent(_UNKNOWN_SECONDS)
            found = self._other_at(address)
        return found

    async def recent(self, seconds: float) -> None:
        """Return when what is known is at most so old. A failure is no obstacle: what was known before stays.

        One failure is that of all who were waiting: each would wait for ZooKeeper in turn.
        """
        asked_at = trio.current_time()
        async with self._reading:
            if trio.current_time() - self._read_at <= seconds or self._failed_at > asked_at:
                return
            try:
                await self._read()
            except HootError as error:
                self._failed_at = trio.current_time()
                log.debug("the hosts cannot be read: %s", error)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Learn all hosts, report started, and follow them until cancelled. Raises if it cannot at first."""
        bell = Doorbell()
        self._watching.watch_children(records.HOSTS, bell.ring)
        async with self._reading:
            await self._read()
        task_status.started()
        while True:
            with trio.move_on_after(self._reconcile_seconds):
                await bell.wait()
            try:
                async with self._reading:
                    await self._read()
            except HootError as error:
                log.warning("the hosts cannot be read: %s", error)
                await trio.sleep(_PAUSE_SECONDS)
                bell.ring()

    def _other_at(self, address: str) -> HostRecord | None:
        return next((host for host in self.others if host.host_port == address), None)

    async def _read(self) -> None:
        found, corrupt = await trio.to_thread.run_sync(self._catalog.readable_hosts)
        for error in corrupt:
            if error.message not in self._complained:
                log.error("%s; it is left alone until it is mended", error.message)
                self._complained.add(error.message)
        before, self._live = self._live, {host.host: host for host in found}
        self._read_at = trio.current_time()
        for host in before.values():
            if not self.is_registered(host.host, host.session) and (host.host, host.session) not in self._dead:
                self._gone(host)
        self._dead &= {(host.host, host.session) for host in found}
        for callback in self._on_read:
            callback()

    def _gone(self, host: HostRecord) -> None:
        if host.host == self.me:
            return
        log.info("host %s at %s is gone", host.host, host.host_port)
        for callback in self._on_gone:
            callback(host)
