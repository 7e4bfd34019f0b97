"""Becoming the owner of partitions that others have, as soon as there is a reason and not before: nothing is polled.

Whoever serves a subscription on every host asks here for every partition of it. Where another host owns it, the asking
waits until one of these happens:

- this host becomes the owner, be it that a client asked it or that another host gave the partition away;
- the owner is gone: its session ended (one watch on the folder of hosts), or nobody listens at its port any more;
- the owner says that it is the owner no longer and that nobody else is (see `news`, `mending`);
- a sweep finds that nobody owns it. Sweeps read the records of a queue every half minute or so, for lost news only.

When a host dies, its partitions must not be stormed: for each one the survivors have an order (placement.rank). The
first one tries at once, each later one a second after the one before it, and only if nobody has it by then. So it is
with a partition that a host could not open and released, while that host itself waits for longer each time: where it
can be opened nowhere, each host tries it as seldom as it sweeps.

Requests to ZooKeeper when P partitions of a dead host fall to H survivors: for each partition 3 reads and one write by
the host that takes it, 2 reads by each other one: P·(4 + 2·(H - 1)) in all, and H·(1 + H) for reading the hosts. The
states of its subscriptions are read and written many at a time (dispatch.taking). A sweep costs each host a request
per partition of the queues in which it waits.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol

import trio

from delivery.cluster.hosts.table import HostTable
from delivery.cluster.ownership import Ownership, Place
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.sharing.placement import rank
from delivery.errors import CorruptRecord, HootError, NotOwner, StorageUnavailable
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.records import HostRecord

log = logging.getLogger(__name__)

STEP_SECONDS: Final = 1.0
"""How much later the next in order tries: a takeover takes some tens of milliseconds, thousands of them seconds."""


class OwnerRecords(Protocol):
    """The owners of a queue's partitions (metastore.catalog.Catalog); blocking."""

    def readable_owners(self, queue: str) -> tuple[dict[int, OwnerInfo], list[CorruptRecord]]:
        """The owned partitions, and what cannot be read. Raises UnknownQueue."""


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


class _Backoff:
    """How long this host leaves a partition alone that it could not open: longer each time, up to `longest` seconds."""

    __slots__ = ("_longest", "_pause", "until")

    def __init__(self, longest: float) -> None:
        self._longest, self._pause = longest, STEP_SECONDS
        self.until = -math.inf

    def failed(self, now: float) -> float:
        """It could not be opened: when it may be tried again. Several who hear of one failure count it once."""
        if now >= self.until:
            self.until = now + min(self._pause, self._longest) * random.uniform(1.0, 1.5)
            self._pause *= 2
        return self.until


class Takeovers:
    """Where subscriptions get their partitions. For the trio thread; `run` owns the sweeps."""

    def __init__(
        self, ownership: Ownership, hosts: HostTable, directory: OwnerRecords, *, sweep_seconds: float,
        partitions_max: int,
    ) -> None:  # fmt: skip
        self._ownership, self._hosts, self._directory = ownership, hosts, directory
        self._sweep_seconds, self._partitions_max = sweep_seconds, partitions_max
        self._waits: dict[Place, _Wait] = {}
        self._backoffs: dict[Place, _Backoff] = {}
        self._complained: set[str] = set()
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
                        wait.due = self._after_refusal(place)
                except (StorageUnavailable, CorruptRecord):
                    backoff = self._backoffs.setdefault(place, _Backoff(self._sweep_seconds))
                    wait.due = backoff.failed(trio.current_time())
                    raise
        finally:
            wait.users -= 1
            if not wait.users:
                del self._waits[place]

    def look_again(self, queue: str, partition: int) -> None:
        """What was known of the owner does not hold: whoever waits for the partition asks ZooKeeper at once."""
        place = (queue, partition)
        self._ownership.elsewhere.pop(place, None)
        if (wait := self._waits.get(place)) is not None:
            wait.try_at(trio.current_time())

    def freed(self, queue: str, partitions: Iterable[int], unable: str) -> None:
        """Nobody owns these; the host `unable` could not open or keep them, and leaves the others their turns."""
        for place in [(queue, partition) for partition in partitions]:
            self._ownership.elsewhere.pop(place, None)
            if (wait := self._waits.get(place)) is not None:
                wait.try_at(min(wait.due, self._turn(place, unable)))

    def look(self) -> int:
        """Look soon at all that is not known to have a living owner; how many these are."""
        free = [place for place in self._waits if not self._has_owner(place)]
        for place in free:
            self._waits[place].try_at(min(self._waits[place].due, self._turn(place)))
        return len(free)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sweep at the interval, with jitter, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(self._sweep_seconds * random.uniform(0.75, 1.25))
            for queue in sorted({queue for queue, _ in self._waits}):
                await self._sweep(queue)
            over = trio.current_time() - self._sweep_seconds
            self._backoffs = {place: backoff for place, backoff in self._backoffs.items() if backoff.until > over}

    async def _until_due(self, place: Place, wait: _Wait) -> None:
        while (pause := wait.due - trio.current_time()) > 0 and not self._ownership.has(*place):
            wait.changed = trio.Event() if wait.changed.is_set() else wait.changed
            with trio.move_on_after(pause):
                await wait.changed.wait()

    def _has_owner(self, place: Place) -> bool:
        """Whether the partition's owner is known, so that its end will be heard of."""
        owner = self._ownership.elsewhere.get(place)
        return owner is not None and self._hosts.lives(owner.host, owner.session)

    def _after_refusal(self, place: Place) -> float:
        """When to try again what another host has, or takes at this moment."""
        if not self._has_owner(place):
            return trio.current_time() + STEP_SECONDS
        self._backoffs.pop(place, None)
        return math.inf

    def _turn(self, place: Place, unable: str = "") -> float:
        """When this host may try to take a partition that nobody owns; never while it takes nothing.

        The host `unable` has no turn before it.
        """
        if self._ownership.draining or len(self._ownership) >= self._partitions_max:
            return math.inf
        later = rank(*place, self._hosts.me, [host for host in self._hosts.all if host.host != unable])
        turn = trio.current_time() + later * STEP_SECONDS * random.uniform(1.0, 1.3)
        backoff = self._backoffs.get(place)
        return turn if backoff is None else max(turn, backoff.until)

    def _taken(self, owned: OwnedPartition) -> None:
        place = (owned.key.queue, owned.key.partition)
        self._backoffs.pop(place, None)
        if (wait := self._waits.get(place)) is not None:
            wait.try_at(trio.current_time())

    def _gone(self, host: HostRecord) -> None:
        """Look at what was that host's, and at what is not known at all."""
        if free := self.look():
            log.warning("host %s is gone; %d partitions are wanted here and may be free", host.host, free)

    async def _sweep(self, queue: str) -> None:
        try:
            owners, corrupt = await trio.to_thread.run_sync(partial(self._directory.readable_owners, queue))
        except HootError as error:
            log.debug("the owners of %s cannot be read: %s", queue, error)
            return
        for message in {one.message for one in corrupt} - self._complained:
            log.error("%s; it is left alone until it is mended", message)
            self._complained.add(message)
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
