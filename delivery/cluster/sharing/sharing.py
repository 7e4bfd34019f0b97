"""Sharing the partitions with the other hosts: everything beyond owning one, put together."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import trio

from delivery.cluster.claims import Directory
from delivery.cluster.hosts.membership import Membership
from delivery.cluster.hosts.peers import Peers
from delivery.cluster.hosts.table import HostRecords, HostTable, Watching
from delivery.cluster.ownership import Ownership
from delivery.cluster.sharing.giving import Giving
from delivery.cluster.sharing.mending import Mending
from delivery.cluster.sharing.news import News
from delivery.cluster.sharing.placing import Placing
from delivery.cluster.sharing.takeover import OwnerRecords, Takeovers
from delivery.cluster.sharing.upkeep import Limits, Upkeep
from delivery.config import HostConfig
from delivery.metastore.records import HostRecord
from delivery.storage.base import MessageStore

log = logging.getLogger(__name__)

TOGETHER_SECONDS: Final = 0.1
"""Before a stopping host gives anything away: hosts that stop at the same moment have said so by then, and get nothing
from one another."""


class Records(Directory, HostRecords, OwnerRecords, Protocol):
    """What is asked of ZooKeeper (metastore.catalog.Catalog); blocking."""


class Sharing:
    """One host among several. `run` owns the tasks of its parts; alone, a host has nothing to do with it."""

    def __init__(
        self, ownership: Ownership, membership: Membership, watching: Watching, records: Records, store: MessageStore,
        config: HostConfig, *, flush: Callable[[str, int], Awaitable[Any]],
    ) -> None:  # fmt: skip
        """`flush(queue, partition)` writes the checkpoints of one partition that are due."""
        self._ownership = ownership
        self.hosts = HostTable(watching, records, membership.host, config.reconcile_seconds)
        self._peers = Peers(self.hosts, membership.is_gone)
        self._placing = Placing(self.hosts, self._peers, config.partitions_max)
        ownership.placing = self._placing
        self.takeovers = Takeovers(
            ownership, self.hosts, records, sweep_seconds=config.reconcile_seconds, partitions_max=config.partitions_max
        )
        self._news = News(self.hosts, self._peers, self.takeovers)
        ownership.unable = self._news.unable
        self._mending = Mending(records, self.takeovers, self._news)
        self._giving = Giving(
            ownership, records, store, self.hosts, self._placing, mending=self._mending, news=self._news, flush=flush
        )
        limits = Limits(config.partitions_max, config.retention_after_access_seconds, config.rebalance_seconds)
        self._upkeep = Upkeep(ownership, self.hosts, self._giving, membership.tell, limits)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. The host must be registered before. Raises if ZooKeeper cannot be read at first."""
        try:
            async with trio.open_nursery() as nursery:
                parts = (
                    self.hosts, self._peers, self._news, self.takeovers, self._mending, self._giving, self._upkeep,
                )  # fmt: skip
                for part in parts:
                    await nursery.start(part.run)
                task_status.started()
        finally:
            self._peers.close()

    def successor(self) -> HostRecord | None:
        """While this host is draining: the one that is to do instead what a single host does for all."""
        return self._placing.least() if self._giving.draining else None

    async def take(self, queue: str, partition: int) -> None:
        """Another host says that this partition is this host's, or nobody's: take it. Raises as `Ownership.acquire`."""
        await self._ownership.acquire(queue, partition, given=True)

    async def freed(self, queue: str, partitions: Sequence[int], unable: str) -> None:
        """Another host says that nobody owns these, since the host `unable` could not: who waits for one tries it."""
        self.takeovers.freed(queue, partitions, unable)

    async def move(self, queue: str, partition: int, host: str) -> None:
        """See `Giving.move`."""
        await self._giving.move(queue, partition, host)

    async def drain(self, draining: bool) -> int:
        """Begin or end draining this host; how many partitions it has left. All others know of it on return."""
        left = self._giving.drain(draining)
        if not draining:
            self.takeovers.look()
        await self._upkeep.tell()
        return left

    async def leave(self, seconds: float) -> None:
        """Before the host stops: give away what others take, for at most so long.

        Subscribers get half of it for acknowledging what is out: a stop is announced, and need not repeat anything.
        """
        if not self.hosts.others:
            return
        self._giving.close()
        await self._upkeep.tell()
        await trio.sleep(TOGETHER_SECONDS)
        await self.hosts.recent(0.0)
        if any(not host.draining for host in self.hosts.others):
            log.info("%d partitions go to other hosts", len(self._ownership))
            with trio.move_on_after(seconds):
                await self._giving.empty(seconds / 2)
