"""What operators ask and change: queues, what their partitions hold, subscriptions and how far they have got."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from delivery import wall
from delivery.client.calls import Calls, partition_info
from delivery.client.copying import Side
from delivery.client.explaining import Explained, Explaining
from delivery.client.health import Health
from delivery.client.hosts import Owners
from delivery.client.looking import Looking, SubscriptionInfo, check_passing
from delivery.client.looks import Looks
from delivery.client.pausing import Pausing
from delivery.client.positions import Move, Positions
from delivery.client.replays import Replays
from delivery.client.snapshots import Snapshots
from delivery.dispatch.observation import Observation
from delivery.dispatch.verdict import Limits
from delivery.errors import (
    HootError,
    InvalidRequest,
    SubscriptionBusy,
    SubscriptionExists,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.ids import MessageId, Start
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.records import HostRecord, QueueRecord, SubscriptionRecord
from delivery.metastore.request import Request, new_record
from delivery.model import ArchivedRange, QueueSettings
from delivery.networks import host_port

LOOKED_AT_ONCE = 8
"""Subscriptions that are looked at side by side."""


class Backlog(msgspec.Struct, frozen=True):
    """What of a partition its slowest subscription has not acknowledged."""

    messages: int
    bytes: int
    subscription: str
    """Which one that is; empty where publishers wait for none."""
    full: bool
    """Whether publishers wait for it."""


class StoredPartition(msgspec.Struct, frozen=True):
    """What a partition holds. Ids are 0 when it holds nothing; `host` is None when its numbers cannot be had now."""

    partition: int
    host: str | None
    """The owner's host:port."""
    epoch: int
    first: MessageId
    last: MessageId
    messages: int
    bytes: int
    archived: tuple[ArchivedRange, ...] = ()
    """The files of its archive, oldest first; the numbers above count what is in them alone, too."""
    trouble: str = ""
    """Why its numbers cannot be had."""
    backlog: Backlog | None = None
    """Of a queue that limits it; None as long as it was not measured."""


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue and what hangs on it."""

    record: QueueRecord
    subscriptions: tuple[str, ...]
    partitions: tuple[StoredPartition, ...]


class Admin:
    """Administration over one catalog and the region hosts. Thread-safe; closes nothing.

    Every call raises MetadataUnavailable when ZooKeeper does not answer within its deadline.
    """

    def __init__(self, catalog: Catalog, owners: Owners, calls: Calls) -> None:
        self._catalog, self._owners, self._calls = catalog, owners, calls
        self.side = Side(catalog, calls)
        """What copying works with."""
        self._positions = Positions(catalog, calls)
        self.snapshots = Snapshots(catalog, self._positions)
        self.pausing = Pausing(catalog, self._observed)
        self.replays = Replays(catalog, calls, self._positions)
        self._explaining = Explaining(catalog, calls)

    def create_queue(self, name: str, settings: QueueSettings | None, changes: dict[str, object]) -> QueueRecord:
        """See Client.create_queue."""
        return self._catalog.create_queue(name, changed(settings or QueueSettings(), changes))

    def update_queue(self, name: str, settings: QueueSettings | None, changes: dict[str, object]) -> QueueRecord:
        """See Client.update_queue."""
        return self._catalog.update_queue(name, lambda present: changed(settings or present, changes))

    def delete_queue(self, name: str) -> str:
        """See Client.delete_queue; gives the generation of the queue."""
        generation = self._catalog.delete_queue(name)
        self._owners.forget_queue(name)
        return generation

    def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return self._catalog.queues()

    def queue_record(self, name: str) -> QueueRecord:
        """A queue's record. Raises UnknownQueue, naming what comes near."""
        return self._catalog.queue(name)

    def queue_records(self) -> list[QueueRecord]:
        """The records of all queues, by name."""
        return self._catalog.queue_records()

    def queue_info(self, name: str) -> QueueInfo:
        """A queue with its subscriptions and what each partition holds. Raises UnknownQueue.

        Looking at a partition that nobody owns yet makes a host take it.
        """
        record = self._catalog.queue(name)
        numbers = range(record.settings.partitions)
        looks = self._looks()
        partitions = tuple(self._stored(looks, name, number) for number in numbers)
        if record.settings.archive is not None:
            found = [self._catalog.archived(name, number) for number in numbers]
            pairs = zip(partitions, found, strict=True)
            partitions = tuple(msgspec.structs.replace(one, archived=files) for one, files in pairs)
        return QueueInfo(record, tuple(self._catalog.subscriptions(name)), partitions)

    def hosts(self) -> list[HostRecord]:
        """The live region hosts."""
        return self._catalog.hosts()

    def subscriptions(self, queue: str) -> list[str]:
        """The names of a queue's subscriptions, attached or not, sorted. Raises UnknownQueue."""
        return self._catalog.subscriptions(queue)

    def check_subscription(self, queue: str, name: str) -> None:
        """Raises UnknownQueue, UnknownSubscription."""
        self._subscription(queue, name)

    def subscription_info(self, queue: str, name: str, limits: Limits) -> SubscriptionInfo:
        """See Client.subscription_info."""
        return self._look().info(self._subscription(queue, name), limits)

    def subscription_infos(self, queue: str | None, name: str | None, limits: Limits) -> list[SubscriptionInfo]:
        """See Client.subscription_infos."""
        looking = self._look()

        def look(place: tuple[str, str]) -> SubscriptionInfo | None:
            try:
                return looking.info(self._subscription(*place), limits)
            except (UnknownQueue, UnknownSubscription):
                return None  # deleted meanwhile

        queues = self._catalog.queues() if queue is None else [queue]
        found = [(one, subscription) for one in queues for subscription in self._catalog.subscriptions(one)]
        places = [place for place in found if name in (None, place[1])]
        with ThreadPoolExecutor(LOOKED_AT_ONCE, "hoot-looking") as threads:
            return [info for info in threads.map(look, places) if info is not None]

    def create_subscription(self, name: str, request: Request) -> SubscriptionRecord:
        """See Client.create_subscription. One left over from an earlier queue of the name makes room."""
        queue = self._catalog.queue(request.queue)
        found = self._catalog.subscription(request.queue, name)
        if found is not None and found.generation == queue.generation:
            raise SubscriptionExists(f"queue {queue.name!r} has a subscription {name!r} already")
        record = new_record(request, name, queue, None, partial(self._last_id, queue.name), wall.ms())
        if found is not None:
            self._catalog.delete_subscription(found.queue, name)
        self._catalog.create_subscription(record)
        return record

    def update_subscription(
        self, queue: str, name: str, wanted: Callable[[SubscriptionRecord], SubscriptionRecord], *, dry_run: bool
    ) -> SubscriptionRecord:
        """See Client.update_subscription."""

        def change(found: SubscriptionRecord) -> SubscriptionRecord:
            changed = wanted(found)
            if changed.kind != found.kind:  # what is written by this look is refused if anybody attaches meanwhile
                self._check_nobody_attached(found)
            return changed

        if dry_run:
            return change(self._subscription(queue, name))
        return self._catalog.change_subscription(queue, name, change)

    def explain(
        self, queue: str, name: str, message: int, partition: int | None, view: Callable[[], bytes]
    ) -> list[Explained]:
        """See Client.explain; `view` gives what of transactions is committed now."""
        return self._explaining.explain(self._subscription(queue, name), message, partition, view)

    def delete_subscription(self, queue: str, name: str) -> None:
        """Delete a subscription with its states; its workers stop. Raises UnknownQueue, UnknownSubscription."""
        self._subscription(queue, name)
        self._catalog.delete_subscription(queue, name)

    def parked(self, queue: str, name: str) -> list[tuple[int, ParkedKey]]:
        """See Client.parked."""
        states = self._catalog.states(queue, name)
        return [(partition, one) for partition in sorted(states) for one in states[partition].parked]

    def release(self, queue: str, name: str, keys: Collection[bytes] | None) -> int:
        """See Client.release."""
        given: object = keys
        several = isinstance(given, Collection) and not isinstance(given, str | bytes)
        if given is not None and not (several and all(isinstance(key, bytes) for key in keys or ())):
            raise InvalidRequest(f"keys to release are several, each of them bytes, or None for all: not {keys!r:.60}")
        return self._catalog.release_parked(queue, name, keys, wall.ms())

    def seek(
        self, queue: str, name: str, to: Start, partitions: Iterable[int] | None, *, force: bool, dry_run: bool
    ) -> list[Move]:
        """See Client.seek."""
        return self._positions.seek(self._subscription(queue, name), to, partitions, force=force, dry_run=dry_run)

    def _check_nobody_attached(self, record: SubscriptionRecord) -> None:
        for one in self._catalog.members(record.queue, record.name):
            raise SubscriptionBusy(
                f"subscription {record.name!r} of queue {record.queue!r} is {record.kind}, and its kind can be changed"
                f" only while nobody is attached: stop the subscriber at {one.host_port}, and all others, first",
                address=one.host_port,
            )

    def _last_id(self, queue: str, partition: int) -> int:
        return int(partition_info(self._calls.call, queue, partition).lastId)

    def _subscription(self, queue: str, name: str) -> SubscriptionRecord:
        return self._positions.record(queue, name)

    def _look(self) -> Looking:
        return Looking(self._catalog, self._owners, self._looks())

    def _observed(self, record: SubscriptionRecord) -> Iterable[Observation]:
        attached = self._catalog.members(record.queue, record.name)
        return Health(self._catalog, self._looks()).observations(record, attached).values()

    def _looks(self) -> Looks:
        return Looks(self._calls, self._owners)

    def _stored(self, looks: Looks, queue: str, partition: int) -> StoredPartition:
        try:
            info = partition_info(looks.call, queue, partition)
            host = self._host(queue, partition)
        except HootError as error:
            check_passing(error)
            return StoredPartition(partition, None, 0, MessageId(0), MessageId(0), 0, 0, trouble=error.message)
        first, last = MessageId(info.firstId), MessageId(info.lastId)
        told = info.backlog
        backlog = None if told is None else Backlog(told.messages, told.bytes, told.subscription, told.full)
        return StoredPartition(partition, host, info.epoch, first, last, info.messages, info.bytes, backlog=backlog)

    def _host(self, queue: str, partition: int) -> str:
        return host_port(*self._owners.address(queue, partition))


def changed(settings: QueueSettings, changes: dict[str, object]) -> QueueSettings:
    """`settings` with the named fields changed. Raises InvalidRequest for unknown fields and wrong types."""
    known: Sequence[str] = QueueSettings.__struct_fields__
    if unknown := sorted(set(changes) - set(known)):
        raise InvalidRequest(f"a queue has no setting {', '.join(unknown)}: it has {', '.join(known)}")
    try:
        return msgspec.convert({**msgspec.structs.asdict(settings), **changes}, QueueSettings)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"these settings cannot be: {error}") from None
