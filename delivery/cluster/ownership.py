"""Owning partitions: claimed on first touch, dropped the moment something says that they may be lost.

A claim is a compare-and-set on the partition's record in ZooKeeper, which raises the epoch, and then an `open` of the
store under that epoch, which fences all older ones. Whatever this host believes afterwards, an append counts only while
its epoch stands in the store. So dropping is always safe and owning is never proof.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import trio

from delivery.cluster.bell import Doorbell
from delivery.cluster.claiming import Claiming
from delivery.cluster.claims import Claims, Directory, Member, Wanted
from delivery.cluster.cleaning import Cleaning
from delivery.cluster.doubts import Doubts
from delivery.cluster.partition import OwnedPartition, PartitionReader, Tail
from delivery.cluster.refusals import TROUBLE, Refusals
from delivery.errors import HootError, MetadataUnavailable, NotOwner, StorageUnavailable, UnknownQueue, again
from delivery.metastore.records import HostRecord, QueueRecord
from delivery.model import QueueSettings, check_partition, is_generation
from delivery.storage.base import MessageStore, PartitionKey

log = logging.getLogger(__name__)

Place = tuple[str, int]
"""Queue and partition."""

OPENED_AT_ONCE: Final = 16
"""In threads: opening may have to recover a partition's log."""


class Queues(Protocol):
    """The queue records (queues.QueueTable)."""

    async def get(self, name: str, generation: str = "") -> QueueRecord:
        """A queue, if given only of that generation. Raises UnknownQueue."""


class Placing(Protocol):
    """Where partitions go that nobody owns (placing.Placing)."""

    async def elsewhere(self, owned: int, *, draining: bool) -> HostRecord | None:
        """The host that should take the next one instead of this host, which has `owned`; None: this one."""

    async def offer(self, host: HostRecord, queue: str, partition: int) -> bool:
        """Ask that host to take it; whether it did."""


class Ownership:
    """The partitions of this host. For the trio thread; blocking calls hop to threads. `run` closes what was lost."""

    def __init__(
        self, directory: Directory, store: MessageStore, tail: Tail, member: Member, queues: Queues,
        reopen_seconds: float,
    ) -> None:  # fmt: skip
        """`reopen_seconds` is the pause before a partition whose store failed is opened anew."""
        self._tail = tail
        self._member, self._queues = member, queues
        self.placing: Placing | None = None
        """Where unowned partitions go that a client asks this host for; None: all stay here."""
        self.draining = False
        """This host takes nothing new but what is given to it in the partition's record."""
        self.elsewhere: dict[Place, HostRecord] = {}
        """The owners of partitions that were asked for in vain, as of then."""
        self._on_taken: list[Callable[[OwnedPartition], None]] = []
        self.unable: Callable[[PartitionKey], None] = lambda _: None
        """Hears of partitions that this host claimed, could not open and released: nobody owns them then."""
        self.reader = PartitionReader(store, tail)
        self._owned: dict[Place, OwnedPartition] = {}
        self._refusals = Refusals(reopen_seconds)
        self._locks: dict[PartitionKey, trio.Lock] = {}
        self._limiter = trio.CapacityLimiter(OPENED_AT_ONCE)
        self._claiming = Claiming(Claims(directory, store, member), self._limiter)
        self._cleaning = Cleaning(store, self._locks, self._is_owned, self._limiter)
        self._doubts = Doubts(directory, self._limiter)
        self._bell: Doorbell | None = None

    def __iter__(self) -> Iterator[OwnedPartition]:
        return iter(list(self._owned.values()))

    def __len__(self) -> int:
        return len(self._owned)

    @property
    def troubles(self) -> list[str]:
        """One line per partition that this host should serve and cannot."""
        return self._refusals.troubles()

    def on_taken(self, callback: Callable[[OwnedPartition], None]) -> None:
        """Call `callback` whenever this host has become the owner of a partition."""
        self._on_taken.append(callback)

    def has(self, queue: str, partition: int) -> bool:
        """Whether this host owns the partition and keeps it."""
        owned = self._owned.get((queue, partition))
        return owned is not None and not owned.use.draining

    def owned(self, queue: str, partition: int) -> OwnedPartition | None:
        """The partition if this host owns it, without waiting. None: `acquire` may get it.

        Raises NotOwner with the owner's address when another live host had it a moment ago, and what made a claim fail
        a moment ago.
        """
        return self._find((queue, partition), given=False)

    async def acquire(
        self, queue: str, partition: int, *, given: bool = False, generation: str = ""
    ) -> OwnedPartition:  # fmt: skip
        """Own the partition. Callers at the same time share one claim; cancelling one leaves the others alone.

        One that nobody owns may go to a less busy host instead; not if it is `given` to this one, by another host or
        because its owner died. With a `generation` only that queue will do.

        Raises NotOwner while another live host owns it, UnknownQueue, UnknownPartition, MetadataUnavailable,
        StorageUnavailable and CorruptRecord (the partition's log is damaged; a person has to look).
        """
        owned = self._find((queue, partition), given=given)
        if owned is not None and is_generation(owned.key.generation, generation):
            return owned
        _ = self._member.session  # raises when there is none: who is cut off says so at once, and asks nobody
        record = await self._queues.get(queue, generation)
        check_partition(partition, record.settings.partitions, queue)
        key = PartitionKey(queue, record.generation, partition)
        placing, target = self.placing, None
        if placing is not None and not given:
            target = await placing.elsewhere(len(self), draining=self.draining)
        taken = await self._take(key, record.settings, given=given, free=target is None and not self.draining)
        if taken is None and placing is not None and target is not None:
            if await placing.offer(target, queue, partition):
                raise self._refused(key, target)
            taken = await self._take(key, record.settings, given=given, free=not self.draining)
        if taken is None:
            raise NotOwner(f"this host is draining and takes no partitions; no other host took {key}")
        return taken

    @asynccontextmanager
    async def locked(self, key: PartitionKey) -> AsyncIterator[None]:
        """Nobody takes or releases this partition here in the meantime; those who ask for it wait."""
        async with self._locks.setdefault(key, trio.Lock()):
            yield

    def give(self, owned: OwnedPartition, target: HostRecord) -> None:
        """The partition goes to another host, by this host's own will; inside `locked`. The caller closes its files."""
        self.lose(owned, self._refused(owned.key, target), close=False)

    def reopen(self, owned: OwnedPartition) -> None:
        """It was closed to be given away, and is lost by now, or stays: then it goes on."""
        owned.use.reopen()
        if owned.feed.error is None:
            self._tell(owned)

    def lose(self, owned: OwnedPartition, error: HootError, *, close: bool = True) -> None:
        """Stop serving a partition; whoever reads or waits gets `error`. Fine when it is lost already.

        Its files are closed soon, by `run`, unless the caller does it: `run` would have to wait for its `locked`.
        """
        place = (owned.key.queue, owned.key.partition)
        owned.feed.close(error)
        if self._owned.get(place) is not owned:
            return
        del self._owned[place]
        self._tail.drop(owned.key)
        if close:
            self._cleaning.release(owned.key)
            self._ring()

    def lose_all(self, error: HootError) -> None:
        """The session is over: nothing is owned any longer."""
        if self._owned:
            log.warning("dropping %d partitions: %s", len(self._owned), error)
        for owned in self:
            self.lose(owned, error)

    def fence(self, owned: OwnedPartition) -> None:
        """Somebody else has the partition under a newer epoch."""
        if owned.feed.error is None:
            log.warning("%s: another host took it over from epoch %d", owned.key, owned.epoch)
        self.lose(owned, NotOwner(f"another host took over partition {owned.key}"))

    def doubt(self, queue: str, partition: int) -> None:
        """ZooKeeper refused a write made as the partition's owner: look whether this host still is."""
        if (owned := self._owned.get((queue, partition))) is not None:
            self._doubts.add(owned)
            self._ring()

    def poison(self, owned: OwnedPartition, error: HootError) -> None:
        """The store failed under a partition: nothing more is acknowledged before it is opened anew, after a pause."""
        if owned.feed.error is None:
            log.error("%s: the store failed; nothing is acknowledged until it is opened anew: %s", owned.key, error)
        self._refuse(owned.key, error)
        self.lose(owned, StorageUnavailable(f"partition {owned.key}: {error.message}"))

    def queue_changed(self, before: QueueRecord, after: QueueRecord | None) -> None:
        """Follow a queue's record: new settings, or the end of the queue and of everything stored for it."""
        generation = (before.name, before.generation)
        for owned in self:
            if (owned.key.queue, owned.key.generation) != generation:
                continue
            if after is None:
                self.lose(owned, UnknownQueue(f"queue {before.name!r} was deleted"))
            else:
                owned.settings = after.settings
        if after is None:
            self._refusals.forget(before.name)
            self.elsewhere = {place: owner for place, owner in self.elsewhere.items() if place[0] != before.name}
            self._cleaning.delete(*generation)
            self._ring()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Close what was lost, delete what belonged to deleted queues, verify what is in doubt, until cancelled."""
        self._bell = Doorbell()
        task_status.started()
        while True:
            await self._doubts.settle(self.fence)
            await self._cleaning.clean()
            with trio.move_on_after(self._doubts.pause):
                await self._bell.wait()

    def _find(self, place: Place, *, given: bool) -> OwnedPartition | None:
        owned = self._owned.get(place)
        if owned is not None:
            owned.use.touch()
            return None if owned.use.leaving or (given and owned.use.draining) else owned
        error = self._refusals.find(*place, trio.current_time())
        if error is not None and not (given and isinstance(error, NotOwner)):
            raise again(error)
        return None

    async def _take(
        self, key: PartitionKey, settings: QueueSettings, *, given: bool, free: bool
    ) -> OwnedPartition | None:  # fmt: skip
        """Own the partition, unless it was claimed here meanwhile. None: nobody owns it, and it is not `free`."""
        async with self.locked(key):
            if (owned := self._find((key.queue, key.partition), given=given)) is not None:
                return owned
            return await self._claim(key, settings, free=free)

    async def _claim(self, key: PartitionKey, settings: QueueSettings, *, free: bool) -> OwnedPartition | None:
        session = self._member.session
        try:
            claimed = await self._claiming.claim(Wanted(key, session, free), settings)
        except HootError as error:
            self._refuse(key, error)
            if isinstance(error, TROUBLE):
                self.unable(key)
            raise
        if isinstance(claimed, HostRecord):
            raise self._refused(key, claimed)
        if claimed is None:
            return None
        owned = OwnedPartition(key, settings, claimed.epoch, claimed.version, claimed.state, self.reader)
        await self._check_still_wanted(owned, session)
        self._begin(owned)
        return owned

    def _begin(self, owned: OwnedPartition) -> None:
        key, place = owned.key, (owned.key.queue, owned.key.partition)
        self._tail.begin(key, owned.watermark)
        self._owned[place] = owned
        self._cleaning.keep(key)
        self._refusals.settle(*place)
        self.elsewhere.pop(place, None)
        log.info("%s: owned under epoch %d, last id %d", key, owned.epoch, owned.watermark)
        self._tell(owned)

    def _tell(self, owned: OwnedPartition) -> None:
        for callback in self._on_taken:
            callback(owned)

    def _refused(self, key: PartitionKey, owner: HostRecord) -> NotOwner:
        """The error for a partition of another host."""
        self.elsewhere[key.queue, key.partition] = owner
        error = NotOwner(f"partition {key} is owned by the host at {owner.host_port}", address=owner.host_port)
        self._refuse(key, error)
        return error

    async def _check_still_wanted(self, owned: OwnedPartition, session: int) -> None:
        """A session or a queue that ended while the claim was in its thread is not heard of again."""
        key = owned.key
        try:
            if self._member.session != session:
                raise MetadataUnavailable(f"the ZooKeeper session ended while partition {key} was being taken")
            record = await self._queues.get(key.queue)
            if record.generation != key.generation:
                raise UnknownQueue(f"queue {key.queue!r} was deleted and created again")
        except BaseException as error:
            self._cleaning.release(key)
            if isinstance(error, UnknownQueue):
                self._cleaning.delete(key.queue, key.generation)
            self._ring()
            raise
        owned.settings = record.settings

    def _refuse(self, key: PartitionKey, error: HootError) -> None:
        if self._refusals.note(key.queue, key.partition, error, trio.current_time()):
            log.error("%s cannot be served: %s", key, error)

    def _is_owned(self, key: PartitionKey) -> bool:
        owned = self._owned.get((key.queue, key.partition))
        return owned is not None and owned.key == key

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.ring()
