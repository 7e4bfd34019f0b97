"""Where a partition goes that nobody owns, when a client asks this host for it: the decision and its execution.

The loads of other hosts are as they told them, at most LOAD_SECONDS old, plus what this host sent them since: a client
that touches a thousand partitions one after another finds them spread, although the records follow only every two
seconds. The other host is asked to take the partition before the client is sent there, so no redirect is in vain; one
that does not is left alone for a while, and the partition stays here.
"""

from __future__ import annotations

import logging
from collections import Counter
from random import Random
from typing import Final

import trio

from delivery.cluster.hosts.peers import Peers
from delivery.cluster.hosts.table import HostTable
from delivery.cluster.sharing.placement import choose, has_clearly_less
from delivery.errors import HootError
from delivery.metastore.records import HostRecord

log = logging.getLogger(__name__)

LOAD_SECONDS: Final = 2.0
"""How old the loads of others may be; reading them costs a request per host, whatever number of partitions follow."""
OFFER_SECONDS: Final = 1.0
"""How long another host may take to open a partition before this one does."""
AVOIDED_SECONDS: Final = 5.0
"""How long a host that did not take a partition gets none from here."""


class Placing:
    """Chooses and asks. For the trio thread."""

    def __init__(self, hosts: HostTable, peers: Peers, partitions_max: int, random: Random | None = None) -> None:
        """Above `partitions_max` this host takes no more of its own will."""
        self._hosts, self._peers, self._partitions_max = hosts, peers, partitions_max
        self._random = random or Random()
        self._given = Counter[str]()
        self._seen: dict[str, HostRecord] = {}
        self._avoided: dict[str, float] = {}
        hosts.on_read(self._count_anew)

    async def elsewhere(self, owned: int, *, draining: bool) -> HostRecord | None:
        """The host that should take the next partition instead of this host, which owns `owned`; None: this one.

        A host that is `draining` sends everything elsewhere, if there is one that takes it.
        """
        if not self._hosts.others:
            return None
        await self._hosts.recent(LOAD_SECONDS)
        target = self.least()
        if target is None or draining or owned >= self._partitions_max:
            return target
        return target if has_clearly_less(target.partitions + self._given[target.host], owned) else None

    def least(self) -> HostRecord | None:
        """The least loaded other host that takes partitions."""
        now = trio.current_time()
        able = [host for host in self._hosts.others if self._avoided.get(host.host, 0.0) <= now]
        return choose(able, self._given, self._random)

    def note(self, host: HostRecord) -> None:
        """This host gave one to that host."""
        self._given[host.host] += 1

    async def offer(self, host: HostRecord, queue: str, partition: int) -> bool:
        """Have that host take a partition that nobody owns; whether it did."""
        self.note(host)
        try:
            await self.ask(host, queue, partition, OFFER_SECONDS)
        except HootError as error:
            log.info("host %s did not take %s/%d: %s", host.host, queue, partition, error)
            return False
        return True

    async def ask(self, host: HostRecord, queue: str, partition: int, seconds: float) -> None:
        """Have that host take a partition within `seconds`. Raises why it did not; then it gets none for a while."""
        try:
            await self._peers.take_partition(host, queue, partition, seconds)
        except HootError:
            self._avoided[host.host] = trio.current_time() + AVOIDED_SECONDS
            raise

    def _count_anew(self) -> None:
        """What was given to a host is in its own figures as soon as these change."""
        for host in self._hosts.all:
            if self._seen.get(host.host) != host:
                self._given.pop(host.host, None)
        self._seen = {host.host: host for host in self._hosts.all}
        self._avoided = {host: until for host, until in self._avoided.items() if host in self._seen}
