"""Telling all hosts which partitions nobody owns any more: whoever waits for one tries it at once.

News are for speed only. One that does not arrive costs the time until the next sweep of those who wait (takeover.py).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Protocol

import trio

from delivery.cluster.hosts.table import HostTable
from delivery.cluster.sharing.takeover import Takeovers
from delivery.errors import HootError
from delivery.metastore.records import HostRecord
from delivery.storage.base import PartitionKey

log = logging.getLogger(__name__)


class Peers(Protocol):
    """The other hosts (peers.Peers)."""

    async def tell_freed(self, host: HostRecord, queue: str, partitions: Sequence[int], unable: str) -> None:
        """Say that nobody owns these partitions. Raises HootError when it does not arrive."""


class News:
    """For the trio thread; `run` owns the telling: to each host one call at a time, what comes meanwhile together."""

    def __init__(self, hosts: HostTable, peers: Peers, takeovers: Takeovers) -> None:
        """`takeovers` are those who wait on this host."""
        self._hosts, self._peers, self._takeovers = hosts, peers, takeovers
        self._untold: dict[str, dict[tuple[str, str], set[int]]] = {}
        """For each host that is being told, what it is to be told next: partitions by queue and who is unable."""
        self._begin, self._begun = trio.open_memory_channel[HostRecord](math.inf)

    def unable(self, key: PartitionKey) -> None:
        """This host could not open a partition, and has released it: others may."""
        self._spread(key.queue, key.partition, self._hosts.me)

    def freed(self, queue: str, partition: int, unable: str) -> None:
        """Nobody owns the partition; the host `unable` could not take or keep it."""
        self._takeovers.freed(queue, [partition], unable)
        self._spread(queue, partition, unable)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tell until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for host in self._begun:
                nursery.start_soon(self._tell, host)

    def _spread(self, queue: str, partition: int, unable: str) -> None:
        for host in self._hosts.others:
            if host.host not in self._untold:
                self._untold[host.host] = {}
                self._begin.send_nowait(host)
            self._untold[host.host].setdefault((queue, unable), set()).add(partition)

    async def _tell(self, host: HostRecord) -> None:
        while news := self._untold[host.host]:
            self._untold[host.host] = {}
            for (queue, unable), partitions in news.items():
                try:
                    await self._peers.tell_freed(host, queue, sorted(partitions), unable)
                except HootError as error:
                    log.debug("host %s was not told that partitions of %s are free: %s", host.host, queue, error)
        del self._untold[host.host]
