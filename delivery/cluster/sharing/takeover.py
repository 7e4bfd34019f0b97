"""Becoming the owner of partitions that others have, as soon as there is a reason and not before: nothing is polled.

Whoever serves a subscription on every host asks here for every partition of it. Where another host owns it, the asking
waits until one of these happens:

- this host becomes the owner, be it that a client asked it or that another host gave the partition away;
- the owner is gone: its session ended (one watch on the folder of hosts), or nobody listens at its port any more;
- the owner says that it is the owner no longer and that nobody else is (see `news`, `mending`);
- a sweep finds that nobody owns it. Sweeps read the records of all that waits every half minute or so, for lost news
  only.

When a host dies, its partitions must not be stormed: for each one the survivors have an order (placement.before). The
first one tries at once. Each later one looks at the record a second after the one before it, and tries only where it
still names nobody who lives: not while a host before it is busy taking others, for then it would only be in its way. So
it is with a partition that a host could not open and released, while that host itself waits for longer each time: where
it can be opened nowhere, each host tries it as seldom as it sweeps.

Requests to ZooKeeper when P partitions of a dead host fall to H survivors: the host that takes them reads the records
64 at a time and writes them 250 at a time, each other one reads them once. That is P/64·H + P/250, and more where
few come together, and H·(1 + H) for reading the hosts. The states of its subscriptions are read and written in the same
way (dispatch.taking). A sweep costs each host P/64 for the P partitions that it waits for.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import trio

from delivery.cluster.hosts.table import HostTable
from delivery.cluster.ownership import Ownership, Place
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.sharing.placement import before
from delivery.errors import CorruptRecord, HootError, NotOwner, StorageUnavailable
from delivery.metastore.partitions import Seen
from delivery.metastore.records import HostRecord

log = logging.getLogger(__name__)

STEP_SECONDS: Final = 1.0
"""How much later the next in order looks: a takeover takes some tens of milliseconds, thousands of them seconds."""
LOOK_PART: Final = 0.1
"""Of a step: looks that are due within it go together."""


class OwnerRecords(Protocol):
    """The owners of partitions (metastore.catalog.Catalog); blocking."""

    def partitions(self, places: Sequence[Place]) -> list[Seen | CorruptRecord]:
        """Who owns these by their records, each with its version; a damaged record is its error."""


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
        self._looks: dict[Place, float] = {}
        """When to look at records whether the hosts before this one have taken what they name nobody for."""
        self._planned = trio.lowlevel.ParkingLot()
        self._backoffs: dict[Place, _Backoff] = {}
        self._complained: set[str] = set()
        ownership.on_taken(self._taken)
        hosts.on_gone(self._gone)

    async def acquire(self, queue: str, partition: int, generation: str = "") -> OwnedPartition:
        """The partition, as soon as it is this host's. Waits for as long as another one has it.

        With a `generation` it is of that queue, and of none that had the name before. Raises what `Ownership.acquire`
        raises, but for NotOwner.
        """
        place = (queue, partition)
        wait = self._waits.setdefault(place, _Wait())
        wait.users += 1
        try:
            if wait.due == math.inf and place not in self._looks and not self._has_owner(place):
                self._plan(place)
            while True:
                await self._until_due(place, wait)
                try:
                    return await self._ownership.acquire(queue, partition, given=True, generation=generation)
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
                self._looks.pop(place, None)

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
            if place in self._waits:
                self._plan(place, unable)

    def look(self) -> int:
        """Look soon at all that is not known to have a living owner; how many these are."""
        free = [place for place in self._waits if not self._has_owner(place)]
        for place in free:
            self._plan(place)
        return len(free)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look at what is due, and sweep at the interval, with jitter, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_forever)
            task_status.started()
            while True:
                await trio.sleep(self._sweep_seconds * random.uniform(0.75, 1.25))
                await self._sweep()
                over = trio.current_time() - self._sweep_seconds
                self._backoffs = {place: backoff for place, backoff in self._backoffs.items() if backoff.until > over}

    async def _until_due(self, place: Place, wait: _Wait) -> None:
        while (pause := wait.due - trio.current_time()) > 0 and not self._ownership.has(*place):
            wait.changed = trio.Event() if wait.changed.is_set() else wait.changed
            if pause == math.inf:  # as thousands do
                await wait.changed.wait()
                continue
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

    def _plan(self, place: Place, unable: str = "") -> None:
        """Nobody owns the partition: this host tries at once if it is the first in order, else it looks at its turn.

        The host `unable` has no turn before it. Nothing is planned while this host takes nothing.
        """
        if self._ownership.draining or len(self._ownership) >= self._partitions_max:
            return
        later, backoff = len(self._before(place, unable)), self._backoffs.get(place)
        turn = trio.current_time() + later * STEP_SECONDS * random.uniform(1.0, 1.3)
        if backoff is not None:
            turn = max(turn, backoff.until)
        if later:
            self._look_at(place, turn)
        else:
            wait = self._waits[place]
            wait.try_at(min(wait.due, turn))

    def _before(self, place: Place, unable: str = "") -> list[str]:
        return before(*place, self._hosts.me, [host for host in self._hosts.all if host.host != unable])

    def _look_at(self, place: Place, when: float) -> None:
        self._looks[place] = min(when, self._looks.get(place, math.inf))
        self._planned.unpark_all()

    async def _look_forever(self) -> None:
        while True:
            with trio.move_on_at(min(self._looks.values(), default=math.inf)):
                await self._planned.park()
            await trio.sleep(LOOK_PART * STEP_SECONDS)  # plans, and what is due, come in crowds
            now = trio.current_time()
            if due := [place for place, when in self._looks.items() if when <= now]:
                for place in due:
                    del self._looks[place]
                await self._look(due)

    async def _look(self, places: Sequence[Place]) -> None:
        """The turn of this host has come for these: try them, unless the hosts before it are busy taking others."""
        try:
            free, busy = await self._find_free(places)
        except HootError as error:
            log.debug("the owners of %d partitions cannot be read: %s", len(places), error)
            free, busy = [place for place in places if place in self._waits], {host.host for host in self._hosts.all}
        for place in free:
            if busy.isdisjoint(self._before(place)):
                self._waits[place].try_at(trio.current_time())
            else:
                self._look_at(place, trio.current_time() + STEP_SECONDS * random.uniform(1.0, 1.3))

    async def _sweep(self) -> None:
        """Look at all that waits for nothing that was planned."""
        places = [
            place for place, wait in self._waits.items() if wait.due == math.inf and place not in self._looks
        ]  # fmt: skip
        try:
            free, _ = await self._find_free(places)
        except HootError as error:
            log.debug("the owners of %d partitions cannot be read: %s", len(places), error)
            return
        for place in free:
            self._plan(place)

    async def _find_free(self, places: Sequence[Place]) -> tuple[list[Place], set[str]]:
        """Those that nobody who lives owns, and who owns others; of these it is known from now on."""
        found = await trio.to_thread.run_sync(self._directory.partitions, places)
        free, owners = [], set()
        for place, seen in zip(places, found, strict=True):
            wait = self._waits.get(place)
            if wait is None or wait.due < math.inf:
                continue
            if isinstance(seen, CorruptRecord):
                self._complain(seen)
                continue
            record = seen[0]
            owner = None if record is None else self._hosts.find(record.host)
            if record is None or owner is None or owner.session != record.session:
                free.append(place)
            elif owner.host == self._hosts.me:
                wait.try_at(trio.current_time())
            else:
                self._ownership.elsewhere[place] = owner
                owners.add(owner.host)
        return free, owners

    def _complain(self, error: CorruptRecord) -> None:
        if error.message not in self._complained:
            log.error("%s; it is left alone until it is mended", error.message)
            self._complained.add(error.message)

    def _taken(self, owned: OwnedPartition) -> None:
        place = (owned.key.queue, owned.key.partition)
        self._backoffs.pop(place, None)
        if (wait := self._waits.get(place)) is not None:
            wait.try_at(trio.current_time())

    def _gone(self, host: HostRecord) -> None:
        """Look at what was that host's, and at what is not known at all."""
        if free := self.look():
            log.warning("host %s is gone; %d partitions are wanted here and may be free", host.host, free)
