"""Becoming the owner of partitions that others have, as soon as there is a reason and not before: nothing is polled.

Whoever serves a subscription on every host asks here for every partition of it. Where another host owns it, the asking
waits until one of these happens:

- this host becomes the owner, be it that a client asked it or that another host gave the partition away;
- the owner is gone: its session ended (one watch on the folder of hosts), or nobody listens at its port any more;
- a sweep finds that nobody owns it. Sweeps read the records of a queue every half minute or so, for lost news only.

When a host dies, its partitions must not be stormed: for each one the survivors have an order (placement.rank). The
first one tries at once, each later one a second after the one before it, and only if nobody has it by then.

Requests to ZooKeeper when P partitions of a dead host fall to H survivors: for each partition 3 reads and one write by
the host that takes it, 2 reads by each other one: P·(4 + 2·(H - 1)) in all, and H·(1 + H) for reading the hosts. The
states of its subscriptions are read and written many at a time (dispatch.taking). A sweep costs each host a request
per partition of the queues in which it waits.
"""

from __future__ import annotations

import logging
import math
import random
from functools import partial
from typing import Final, Protocol

import trio

from delivery.cluster.hosts import HostTable
from delivery.cluster.ownership import Ownership, Place
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.placement import rank
from delivery.errors import HootError, NotOwner
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord

log = logging.getLogger(__name__)

STEP_SECONDS: Final = 1.0
"""How much later the next in order tries: a takeover takes some tens of milliseconds, thousands of them seconds."""


class OwnerRecords(Protocol):
    """The owners of a queue's partitions (metastore.catalog.Catalog); blocking."""

    def owners(self, queue: str) -> dict[int, OwnerInfo]:
        """The owned partitions. Raises UnknownQueue, CorruptRecord."""


class _Wait:
    """One partition that somebody here wants and another host has."""

    __slots__ = ("changed", "due", "users")

    def __init__(self) -> None:
        self.users = 0
        self.due = math.inf
        self.changed = trio.Event()

    def try_at(self, due: float) -> None:
        self.due = due
        self.changed.set()


class Takeovers:
    """Where subscriptions get their partitions. For the trio thread; `run` owns the sweeps."""

    def __init__(
        self, ownership: Ownership, hosts: HostTable, directory: OwnerRecords, *, sweep_seconds: float,
        partitions_max: int,
    ) -> None:  # fmt: skip
        self._ownership, self._hosts, self._directory = ownership, hosts, directory
        self._sweep_seconds, self._partitions_max = sweep_seconds, partitions_max
        self._waits: dict[Place, _Wait] = {}
        ownership.on_taken(self._taken)
        hosts.on_gone(self._gone)

    async def acquire(self, queue: str, partition: int) -> OwnedPartition:
        """The partition, as soon as it is this host's. Waits for as long as another one has it.

        Raises what `Ownership.acquire` raises, but for NotOwner.
        """
        place = (queue, partition)
        wait = self._waits.setdefault(place, _Wait())
        wait.users += 1
        try:
            if wait.due == math.inf and not self._has_owner(place):
                wait.due = self._turn(place)
            while True:
                await self._until_due(place, wait)
                try:
                    return await self._ownership.acquire(queue, partition, given=True)
                except NotOwner:
                    if wait.due <= trio.current_time():
                        wait.due = math.inf if self._has_owner(place) else trio.current_time() + STEP_SECONDS
        finally:
            wait.users -= 1
            if not wait.users:
                del self._waits[place]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sweep at the interval, with jitter, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(self._sweep_seconds * random.uniform(0.75, 1.25))
            for queue in sorted({queue for queue, _ in self._waits}):
                await self._sweep(queue)

    async def _until_due(self, place: Place, wait: _Wait) -> None:
        while (pause := wait.due - trio.current_time()) > 0 and not self._ownership.has(*place):
            wait.changed = trio.Event() if wait.changed.is_set() else wait.changed
            with trio.move_on_after(pause):
                await wait.changed.wait()

    def _has_owner(self, place: Place) -> bool:
        """Whether the partition's owner is known, so that its end will be heard of."""
        owner = self._ownership.elsewhere.get(place)
        return owner is not None and self._hosts.lives(owner.host, owner.session)

    def _turn(self, place: Place) -> float:
        """When this host may try to take a partition that nobody owns; never while it takes nothing."""
        if self._ownership.draining or len(self._ownership) >= self._partitions_max:
            return math.inf
        later = rank(*place, self._hosts.me, self._hosts.all)
        return trio.current_time() + later * STEP_SECONDS * random.uniform(1.0, 1.3)

    def _taken(self, owned: OwnedPartition) -> None:
        if (wait := self._waits.get((owned.key.queue, owned.key.partition))) is not None:
            wait.try_at(trio.current_time())

    def _gone(self, host: HostRecord) -> None:
        """Look at all that is not known to have a living owner: what was that host's, and what is not known at all."""
        free = [place for place in self._waits if not self._has_owner(place)]
        if free:
            log.warning("host %s is gone; %d partitions are wanted here and may be free", host.host, len(free))
        for place in free:
            self._waits[place].try_at(min(self._waits[place].due, self._turn(place)))

    async def _sweep(self, queue: str) -> None:
        try:
            owners = await trio.to_thread.run_sync(partial(self._directory.owners, queue))
        except HootError as error:
            log.debug("the owners of %s cannot be read: %s", queue, error)
            return
        for place, wait in self._waits.items():
            if place[0] != queue or wait.due < math.inf:
                continue
            owner = owners.get(place[1])
            if owner is None or not self._hosts.lives(owner.host, owner.session):
                wait.try_at(self._turn(place))
            elif owner.host == self._hosts.me:
                wait.try_at(trio.current_time())
            elif (found := self._hosts.find(owner.host)) is not None:
                self._ownership.elsewhere[place] = found
