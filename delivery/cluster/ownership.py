"""Owning partitions: claimed on first touch, dropped the moment something says that they may be lost.

A claim is a compare-and-set on the partition's record in ZooKeeper, which raises the epoch, and then an `open` of the
store under that epoch, which fences all older ones. Whatever this host believes afterwards, an append counts only while
its epoch stands in the store. So dropping is always safe and owning is never proof.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import Final, Protocol

import msgspec
import trio

from delivery.cluster.handover import Doorbell
from delivery.cluster.partition import OwnedPartition, PartitionReader, Tail
from delivery.cluster.refusals import Refusals
from delivery.errors import (
    BadVersion,
    HootError,
    MetadataUnavailable,
    NotOwner,
    StorageUnavailable,
    UnknownQueue,
    again,
)
from delivery.metastore.records import HostRecord, PartitionRecord, QueueRecord
from delivery.model import QueueSettings, check_partition
from delivery.storage.base import MessageStore, PartitionKey, PartitionState

log = logging.getLogger(__name__)

CLAIMS_AT_ONCE: Final = 16
"""In threads: a claim is some ZooKeeper calls and a recovery of the partition's log."""


class Directory(Protocol):
    """Who owns what (metastore.catalog.Catalog), as used here; blocking."""

    def partition(self, queue: str, partition: int) -> tuple[PartitionRecord | None, int]:
        """The owner's record and its version."""

    def claim(self, queue: str, partition: int, host: str, session: int, expected_version: int) -> PartitionRecord:
        """Become the owner under the next epoch. Raises BadVersion when somebody else was faster."""

    def release(self, queue: str, partition: int, epoch: int, version: int) -> None:
        """Give a partition up. Raises BadVersion."""

    def host(self, host: str) -> HostRecord | None:
        """A live host."""


class Member(Protocol):
    """This host in the cluster (membership.Membership)."""

    @property
    def host(self) -> str:
        """Its id."""

    @property
    def session(self) -> int:
        """The session to claim with. Raises MetadataUnavailable when there is none to rely on."""

    def is_gone(self, other: HostRecord) -> bool:
        """Whether another host is dead although it is registered still; blocking."""


class Queues(Protocol):
    """The queue records (queues.QueueTable)."""

    async def get(self, name: str) -> QueueRecord:
        """A queue. Raises UnknownQueue."""


class _Claimed(msgspec.Struct, frozen=True):
    epoch: int
    version: int
    state: PartitionState


class Ownership:
    """The partitions of this host. For the trio thread; blocking calls hop to threads. `run` closes what was lost."""

    def __init__(
        self, directory: Directory, store: MessageStore, tail: Tail, member: Member, queues: Queues,
        reopen_seconds: float,
    ) -> None:  # fmt: skip
        """`reopen_seconds` is the pause before a partition whose store failed is opened anew."""
        self._directory, self._store, self._tail = directory, store, tail
        self._member, self._queues = member, queues
        self.reader = PartitionReader(store, tail)
        self._owned: dict[tuple[str, int], OwnedPartition] = {}
        self._refusals = Refusals(reopen_seconds)
        self._locks: dict[PartitionKey, trio.Lock] = {}
        self._limiter = trio.CapacityLimiter(CLAIMS_AT_ONCE)
        self._to_release: set[PartitionKey] = set()
        self._to_delete: set[tuple[str, str]] = set()
        self._to_verify: list[OwnedPartition] = []
        self._bell: Doorbell | None = None

    def __iter__(self) -> Iterator[OwnedPartition]:
        return iter(list(self._owned.values()))

    def __len__(self) -> int:
        return len(self._owned)

    @property
    def troubles(self) -> list[str]:
        """One line per partition that this host should serve and cannot."""
        return self._refusals.troubles()

    def owned(self, queue: str, partition: int) -> OwnedPartition | None:
        """The partition if this host owns it, without waiting. None: `acquire` may get it.

        Raises NotOwner with the owner's address when another live host had it a moment ago, and what made a claim fail
        a moment ago.
        """
        owned = self._owned.get((queue, partition))
        if owned is None and (error := self._refusals.find(queue, partition, trio.current_time())) is not None:
            raise again(error)
        return owned

    async def acquire(self, queue: str, partition: int) -> OwnedPartition:
        """Own the partition. Callers at the same time share one claim; cancelling one leaves the others alone.

        Raises NotOwner while another live host owns it, UnknownQueue, UnknownPartition, MetadataUnavailable,
        StorageUnavailable and CorruptRecord (the partition's log is damaged; a person has to look).
        """
        if (owned := self.owned(queue, partition)) is not None:
            return owned
        record = await self._queues.get(queue)
        check_partition(partition, record.settings.partitions, queue)
        key = PartitionKey(queue, record.generation, partition)
        async with self._locks.setdefault(key, trio.Lock()):
            if (owned := self.owned(queue, partition)) is not None:
                return owned
            return await self._claim(key, record.settings)

    def lose(self, owned: OwnedPartition, error: HootError) -> None:
        """Stop serving a partition; whoever reads or waits gets `error`. Fine when it is lost already."""
        place = (owned.key.queue, owned.key.partition)
        owned.feed.close(error)
        if self._owned.get(place) is not owned:
            return
        del self._owned[place]
        self._tail.drop(owned.key)
        self._to_release.add(owned.key)
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
            self._to_verify.append(owned)
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
            self._to_delete.add(generation)
            self._ring()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Close what was lost, delete what belonged to deleted queues, verify what is in doubt, until cancelled."""
        self._bell = Doorbell()
        task_status.started()
        while True:
            while self._to_verify:
                await self._verify(self._to_verify.pop())
            while self._to_release:
                await self._release(self._to_release.pop())
            while self._to_delete:
                await self._delete(*self._to_delete.pop())
            await self._bell.wait()

    async def _claim(self, key: PartitionKey, settings: QueueSettings) -> OwnedPartition:
        session = self._member.session
        work = partial(self._claim_blocking, key, settings, session)
        try:
            claimed = await trio.to_thread.run_sync(work, limiter=self._limiter)
        except HootError as error:
            self._refuse(key, error)
            raise
        owned = OwnedPartition(key, settings, claimed.epoch, claimed.version, claimed.state, self.reader)
        await self._check_still_wanted(owned, session)
        self._tail.begin(key, owned.watermark)
        self._owned[key.queue, key.partition] = owned
        self._to_release.discard(key)
        self._refusals.settle(key.queue, key.partition)
        log.info("%s: owned under epoch %d, last id %d", key, owned.epoch, owned.watermark)
        return owned

    def _claim_blocking(self, key: PartitionKey, settings: QueueSettings, session: int) -> _Claimed:
        record, version = self._directory.partition(key.queue, key.partition)
        self._check_free(key, record)
        try:
            record = self._directory.claim(key.queue, key.partition, self._member.host, session, version)
        except BadVersion:
            raise NotOwner(f"another host is taking partition {key} at this moment") from None
        try:
            return _Claimed(record.epoch, version + 1, self._store.open(key, record.epoch, settings))
        except HootError:
            # So that a host with a better disk may have it; else our session's end gives it back.
            with contextlib.suppress(HootError):
                self._directory.release(key.queue, key.partition, record.epoch, version + 1)
            raise

    def _check_free(self, key: PartitionKey, record: PartitionRecord | None) -> None:
        """Raise NotOwner when another host owns the partition and lives under the session that it claimed it with."""
        if record is None or not record.host or record.host == self._member.host:
            return
        owner = self._directory.host(record.host)
        if owner is not None and owner.session == record.session and not self._member.is_gone(owner):
            address = f"{owner.address}:{owner.port}"
            raise NotOwner(f"partition {key} is owned by the host at {address}", address=address)

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
            self._to_release.add(key)
            if isinstance(error, UnknownQueue):
                self._to_delete.add((key.queue, key.generation))
            self._ring()
            raise
        owned.settings = record.settings

    def _refuse(self, key: PartitionKey, error: HootError) -> None:
        if self._refusals.note(key.queue, key.partition, error, trio.current_time()):
            log.error("%s cannot be served: %s", key, error)

    async def _verify(self, owned: OwnedPartition) -> None:
        try:
            read = partial(self._directory.partition, owned.key.queue, owned.key.partition)
            _, version = await trio.to_thread.run_sync(read, limiter=self._limiter)
        except HootError as error:
            log.debug("%s: its owner cannot be read: %s", owned.key, error)
            return
        if version != owned.version:
            self.fence(owned)

    async def _release(self, key: PartitionKey) -> None:
        async with self._locks.setdefault(key, trio.Lock()):
            owned = self._owned.get((key.queue, key.partition))
            if owned is None or owned.key != key:
                await trio.to_thread.run_sync(self._store.release, key, limiter=self._limiter)

    async def _delete(self, queue: str, generation: str) -> None:
        for key in [key for key in self._locks if (key.queue, key.generation) == (queue, generation)]:
            async with self._locks[key]:
                await trio.to_thread.run_sync(self._store.release, key, limiter=self._limiter)
            del self._locks[key]
        try:
            await trio.to_thread.run_sync(self._store.delete, queue, generation, limiter=self._limiter)
            log.info("queue %s: what was stored of generation %s is deleted", queue, generation)
        except HootError as error:
            log.error("queue %s: what was stored of generation %s cannot be deleted: %s", queue, generation, error)

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.ring()
