"""Giving partitions away: one to a named host, all of them before the host stops, some to others, or one to nobody.

The steps, so that nothing is lost and subscribers notice as little as can be:

0. The store prepares it, so that the other host has little to read when it opens the partition.
   Partitions have turns, so that those whose turn has not come are delivered from meanwhile: see `turns`.
1. Workers send no more and get a moment for the answers to what is out. What is not acknowledged by then is delivered
   again by the other host, and that is the window at most. Publishing goes on.
2. Nothing new begins in the partition; who publishes to it or reads it waits for the end of this. What is on its way
   into the store gets there.
3. Checkpoints are written, the store's files are closed.
4. The record in ZooKeeper moves to the other host, by compare-and-set, under the next epoch.
5. The other host is told, opens the partition under an epoch of its own, and its deliveries go on.
6. Those who wait here are sent there.

If 2 fails the partition stays. If 4 or 5 fails it is nobody's to wait for: see `mending`. If this host fails between 3
and 5 the record says who owns the partition, and whoever asks that host makes it take it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from delivery.cluster.claims import Directory
from delivery.cluster.hosts.table import HostTable
from delivery.cluster.ownership import Ownership
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.sharing.mending import Mending
from delivery.cluster.sharing.news import News
from delivery.cluster.sharing.placing import Placing
from delivery.cluster.sharing.turns import Turns
from delivery.cluster.use import ANSWER_SECONDS
from delivery.errors import BadVersion, HootError, HostDraining, NotOwner, UnknownHost, again
from delivery.metastore.records import HostRecord
from delivery.model import near_names
from delivery.storage.base import MessageStore, PartitionKey

log = logging.getLogger(__name__)

GIVEN_AT_ONCE: Final = 8
"""In threads."""
PREPARED_AT_ONCE: Final = 2
"""In threads of their own, for which nothing that stands still has to wait."""
TAKE_SECONDS: Final = 5.0
"""How long the other host may take to open a partition."""
_PAUSE_SECONDS: Final = 1.0


class Giving:
    """Gives this host's partitions away. For the trio thread; `run` empties the host while it is draining."""

    def __init__(
        self, ownership: Ownership, directory: Directory, store: MessageStore, hosts: HostTable, placing: Placing, *,
        mending: Mending, news: News, flush: Callable[[str, int], Awaitable[object]],
    ) -> None:  # fmt: skip
        """`flush(queue, partition)` writes the checkpoints of one partition that are due."""
        self._ownership, self._directory, self._store = ownership, directory, store
        self._hosts, self._placing, self._flush = hosts, placing, flush
        self._mending, self._news = mending, news
        self._limiter = trio.CapacityLimiter(GIVEN_AT_ONCE)
        self._preparing = trio.CapacityLimiter(PREPARED_AT_ONCE)
        self._turns = Turns()
        self._drained = trio.Event()
        self._on_the_way: set[PartitionKey] = set()
        """Owned here no longer, and by their records nowhere else yet."""

    @property
    def draining(self) -> bool:
        """Whether this host takes nothing new and gives away what it has."""
        return self._ownership.draining

    def close(self, *, closed: bool = True) -> None:
        """Take nothing new, but for what the records name this host as the owner of; or take part again."""
        self._ownership.draining = closed

    def drain(self, draining: bool) -> int:
        """Begin or end draining; how many partitions this host has now, those included that are on their way.

        `run` does the work.
        """
        self.close(closed=draining)
        self._drained.set()
        return len(self._ownership) + len(self._on_the_way)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """While the host is draining give away whatever it has, until cancelled."""
        task_status.started()
        while True:
            await self._drained.wait()
            if self.draining and len(self._ownership):
                await self.empty()
            if not self.draining:
                self._drained = trio.Event()
            else:
                await trio.sleep(_PAUSE_SECONDS)

    async def empty(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Give away every partition that another host takes. What nobody takes stays. See `give`."""
        await self._hosts.recent(0.0)
        async with trio.open_nursery() as nursery:
            for owned in self._ownership:
                if (target := self._placing.least()) is not None:
                    self._placing.note(target)
                    nursery.start_soon(self.try_to_give, owned, target, answer_seconds)

    async def move(self, queue: str, partition: int, host: str) -> None:
        """Give one partition to a host. Fine when that is this host.

        Raises UnknownHost, HostDraining, NotOwner (ask the owner), and what kept it from being moved.
        """
        await self._hosts.recent(0.0)
        target = self._target(host)
        owned = await self._ownership.acquire(queue, partition, given=target.host == self._hosts.me)
        if target.host != self._hosts.me:
            await self.give(owned, target)

    async def give(
        self, owned: OwnedPartition, target: HostRecord, answer_seconds: float = ANSWER_SECONDS
    ) -> None:  # fmt: skip
        """Give one partition to `target` and return when that has opened it.

        Subscribers get `answer_seconds` to acknowledge what is out; meanwhile nothing more is delivered from it.

        Raises DeadlineExceeded when the store does not take in time what was published before (the partition stays),
        the partition's error when it is lost meanwhile, and what kept the target from opening it: then it is taken
        back, and the target is left alone for a while.
        """
        async with self._turns.turn(busy=owned.traffic.busy) as end_turn, self._ownership.locked(owned.key):
            await self._prepare(owned)
            begun = trio.current_time()
            if owned.feed.error is not None:
                raise again(owned.feed.error)
            try:
                await self._empty(owned, partial(self._let_go, owned, target), answer_seconds, end_turn)
                await self._hand_over(owned, target)
            except BaseException:
                if owned.key in self._on_the_way:
                    self._mending.begin(owned, target)
                raise
            finally:
                self._on_the_way.discard(owned.key)
        took = (trio.current_time() - begun) * 1000
        log.info("%s: given to the host at %s in %.0f ms", owned.key, target.host_port, took)

    async def try_to_give(
        self, owned: OwnedPartition, target: HostRecord, answer_seconds: float = ANSWER_SECONDS
    ) -> None:  # fmt: skip
        """`give`, where nobody waits for it: a failure is logged."""
        try:
            await self.give(owned, target, answer_seconds)
        except HootError as error:
            log.warning("%s could not be given to the host at %s: %s", owned.key, target.host_port, error)

    async def release(self, owned: OwnedPartition) -> None:
        """Give one partition up; the next who is asked for it takes it, or who waits for it. Raises as `give`."""
        async with self._turns.turn(busy=owned.traffic.busy) as end_turn, self._ownership.locked(owned.key):
            if owned.feed.error is None:
                wanted = owned.use.active
                error = NotOwner(f"partition {owned.key} was not used and is owned by nobody now")
                lose = partial(self._ownership.lose, owned, error, close=False)
                await self._empty(owned, lose, ANSWER_SECONDS, end_turn)
                key = owned.key
                give_up = partial(self._directory.release, key.queue, key.partition, owned.epoch, owned.version)
                try:
                    await trio.to_thread.run_sync(give_up, limiter=self._limiter)
                except BadVersion:
                    log.debug("%s: another host has it already", key)
                    return
                if wanted:
                    self._news.freed(key.queue, key.partition, self._hosts.me)

    async def _prepare(self, owned: OwnedPartition) -> None:
        """Step 0. A store that fails at it may fail at more, which whoever publishes will find out."""
        prepare = partial(self._store.prepare_release, owned.key)
        try:
            await trio.to_thread.run_sync(prepare, limiter=self._preparing)
        except HootError as error:
            log.warning("%s is given away unprepared: %s", owned.key, error)

    async def _empty(
        self, owned: OwnedPartition, lose: Callable[[], None], answer_seconds: float, end_turn: Callable[[], None]
    ) -> None:  # fmt: skip
        """Steps 1 to 3."""
        try:
            # Slow subscribers are waited for without keeping others from their turns.
            if not await owned.use.drain(min(answer_seconds, ANSWER_SECONDS)) and answer_seconds > ANSWER_SECONDS:
                end_turn()
                await owned.use.drain(answer_seconds - ANSWER_SECONDS)
            await owned.use.empty(owned.feed)
            await self._flush(owned.key.queue, owned.key.partition)
            lose()
        finally:
            self._ownership.reopen(owned)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._store.release, owned.key, limiter=self._limiter)

    def _let_go(self, owned: OwnedPartition, target: HostRecord) -> None:
        self._ownership.give(owned, target)
        self._on_the_way.add(owned.key)

    async def _hand_over(self, owned: OwnedPartition, target: HostRecord) -> None:
        """Steps 4 and 5."""
        key = owned.key
        claim = partial(self._directory.claim, key.queue, key.partition, target.host, target.session, owned.version)
        try:
            await trio.to_thread.run_sync(claim, limiter=self._limiter)
        except BadVersion:
            raise NotOwner(f"another host took partition {key} at this moment") from None
        await self._placing.ask(target, key.queue, key.partition, TAKE_SECONDS)

    def _target(self, host: str) -> HostRecord:
        found = self._hosts.find(host)
        if found is None:
            near = near_names(host, [one.host for one in self._hosts.all])
            hint = f": did you mean {' or '.join(near)}?" if near else "; `hoot host list` shows the live ones"
            raise UnknownHost(f"there is no host {host!r}{hint}")
        if found.draining or (found.host == self._hosts.me and self.draining):
            raise HostDraining(f"host {host} is draining: it takes no partitions")
        return found
