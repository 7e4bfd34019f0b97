"""What operators ask and change: queues, what their partitions hold, subscriptions and how far they have got."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from delivery import wall
from delivery.batch import peek
from delivery.client.calls import Calls
from delivery.client.filtering import Explained, Filtering
from delivery.client.groups import Member, members_of
from delivery.client.hosts import Owners
from delivery.client.positions import Move, Positions
from delivery.client.replays import Replays
from delivery.client.snapshots import Snapshots
from delivery.errors import HootError, InvalidRequest, SubscriptionExists
from delivery.ids import MessageId, Start
from delivery.metastore.catalog import Catalog
from delivery.metastore.groups import Kind
from delivery.metastore.managers.records import ParkedKey, SubscriptionState
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import HostRecord, QueueRecord, SubscriptionRecord
from delivery.metastore.replays import Replay
from delivery.metastore.request import Request, new_record
from delivery.model import QueueSettings
from delivery.rpc.protocol import load_idl

LOOK_SECONDS = 5.0
"""How long one partition is asked before its numbers are given as unknown."""


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


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue and what hangs on it."""

    record: QueueRecord
    subscriptions: tuple[str, ...]
    partitions: tuple[StoredPartition, ...]


class SubscribedPartition(msgspec.Struct, frozen=True):
    """How far a subscription has got in one partition. None stands for what cannot be had now."""

    partition: int
    start: MessageId
    """It began after this id."""
    position: MessageId
    """Everything up to here is acknowledged: what was saved last, or `start` before a host began with it."""
    end: MessageId | None
    """The last id of the partition."""
    lag: int | None
    """Messages of the partition above `position`, whatever their topic."""
    lag_seconds: float | None
    """The age of the oldest of these; 0 when there is none."""
    host: str | None
    parked: int
    """Messages up to `position` that are parked (docs/retries.md), as they were saved last."""


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscription, who is attached, and how far it has got."""

    queue: str
    subscription: str
    created_ms: int
    all_partitions: bool
    topics: tuple[str, ...]
    filter: str | None
    """Its rule as JSON."""
    kind: Kind
    listener: str | None
    """host:port of the subscriber that is attached to an exclusive one."""
    members: tuple[Member, ...]
    """Of a group, by name."""
    retry: RetryPolicy
    partitions: tuple[SubscribedPartition, ...]
    replay: Replay | None = None
    """What of, if it is a replay; `end` and lags are those of its stretch then."""
    finished: bool = False
    """Whether it is a replay of which nothing is left."""
    bound: int = 0
    """Only so many of the newest messages of a partition matter; 0 for all."""

    @property
    def attached(self) -> tuple[str, ...]:
        """host:port of all who are attached."""
        return tuple(place for place in (self.listener, *(one.listener for one in self.members)) if place)

    @property
    def holders(self) -> dict[int, str]:
        """Which member gets a partition."""
        return {number: one.member for one in self.members for number in one.partitions}

    @property
    def lag(self) -> int | None:
        """Of all partitions; None when one of them is not known. Without what is parked."""
        lags = [one.lag for one in self.partitions]
        return None if None in lags else sum(lag or 0 for lag in lags)

    @property
    def parked(self) -> int:
        """Messages of all partitions that are parked."""
        return sum(one.parked for one in self.partitions)

    @property
    def lag_seconds(self) -> float | None:
        """Of the partition that is furthest behind; None when one of them is not known."""
        ages = [one.lag_seconds for one in self.partitions]
        return None if None in ages else max((age or 0.0 for age in ages), default=0.0)


class Admin:
    """Administration over one catalog and the region hosts. Thread-safe; closes nothing.

    Every call raises MetadataUnavailable when ZooKeeper does not answer within its deadline.
    """

    def __init__(self, catalog: Catalog, owners: Owners, calls: Calls) -> None:
        self._catalog, self._owners, self._calls = catalog, owners, calls
        self._positions = Positions(catalog, calls)
        self.snapshots = Snapshots(catalog, self._positions)
        self.replays = Replays(catalog, calls, self._positions)
        self._filtering = Filtering(catalog, calls)

    def create_queue(self, name: str, settings: QueueSettings | None, changes: dict[str, object]) -> QueueRecord:
        """See Client.create_queue."""
        return self._catalog.create_queue(name, changed(settings or QueueSettings(), changes))

    def update_queue(self, name: str, settings: QueueSettings | None, changes: dict[str, object]) -> QueueRecord:
        """See Client.update_queue."""
        present = self._catalog.queue(name).settings
        return self._catalog.update_queue(name, changed(settings or present, changes))

    def delete_queue(self, name: str) -> None:
        """See Client.delete_queue."""
        self._catalog.delete_queue(name)
        self._owners.forget_queue(name)

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
        partitions = tuple(self._stored(name, number) for number in range(record.settings.partitions))
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

    def subscription_info(self, queue: str, name: str) -> SubscriptionInfo:
        """How far a subscription has got, and who is attached. Raises UnknownQueue, UnknownSubscription."""
        record = self._subscription(queue, name)
        states = self._catalog.states(queue, name)
        attached = self._catalog.members(queue, name)
        listener = next((one.host_port for one in attached if record.kind == "exclusive" and not one.member), None)
        partitions = []
        for number, start in sorted(record.starts.items()):
            until = record.replay.end(number) if record.replay else 0
            partitions.append(self._subscribed(queue, number, start, states.get(number), until))
        return SubscriptionInfo(
            queue, name, record.created_ms, record.all_partitions, record.topics, record.filter,
            record.kind, listener, members_of(record, attached), record.retry, tuple(partitions), record.replay,
            _is_over(record.replay, partitions), record.bound,
        )  # fmt: skip

    def create_subscription(self, name: str, request: Request) -> SubscriptionRecord:
        """See Client.create_subscription. One left over from an earlier queue of the name makes room."""
        queue = self._catalog.queue(request.queue)
        found = self._catalog.subscription(request.queue, name)
        if found is not None and found.generation == queue.generation:
            raise SubscriptionExists(f"queue {queue.name!r} has a subscription {name!r} already")
        record = new_record(request, name, queue, None, partial(self._last_id, queue.name), wall.ms())
        if found is not None:
            self._catalog.delete_subscription(found.queue, name)
        self._catalog.put_subscription(record, create=True)
        return record

    def update_subscription(
        self, queue: str, name: str, wanted: Callable[[SubscriptionRecord], SubscriptionRecord], *, dry_run: bool
    ) -> SubscriptionRecord:
        """See Client.update_subscription."""
        if dry_run:
            return wanted(self._subscription(queue, name))
        return self._catalog.change_subscription(queue, name, wanted)

    def explain(self, queue: str, name: str, message: int, partition: int | None) -> list[Explained]:
        """See Client.explain."""
        return self._filtering.explain(self._subscription(queue, name), message, partition)

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
        return self._catalog.release_parked(queue, name, keys, wall.ms())

    def seek(
        self, queue: str, name: str, to: Start, partitions: Iterable[int] | None, *, force: bool, dry_run: bool
    ) -> list[Move]:
        """See Client.seek."""
        return self._positions.seek(self._subscription(queue, name), to, partitions, force=force, dry_run=dry_run)

    def _last_id(self, queue: str, partition: int) -> int:
        return int(self._calls.call(queue, partition, "partitionInfo", queue, partition).lastId)

    def _subscription(self, queue: str, name: str) -> SubscriptionRecord:
        return self._positions.record(queue, name)

    def _stored(self, queue: str, partition: int) -> StoredPartition:
        try:
            info = self._calls.call(queue, partition, "partitionInfo", queue, partition, timeout=LOOK_SECONDS)
            host = self._host(queue, partition)
        except HootError as error:
            if not error.retryable:
                raise
            return StoredPartition(partition, None, 0, MessageId(0), MessageId(0), 0, 0)
        first, last = MessageId(info.firstId), MessageId(info.lastId)
        return StoredPartition(partition, host, info.epoch, first, last, info.messages, info.bytes)

    def _subscribed(
        self, queue: str, partition: int, start: int, state: SubscriptionState | None, until: int
    ) -> SubscribedPartition:
        position = start if state is None else state.position
        place = (partition, MessageId(start), MessageId(position))
        parked = 0 if state is None else sum(len(one.ids) for one in state.parked)
        try:
            info = self._calls.call(queue, partition, "partitionInfo", queue, partition, timeout=LOOK_SECONDS)
            lag = 0
            if not until or position < until:
                lag = self._calls.call(
                    queue, partition, "countMessages", queue, partition, position, until, timeout=LOOK_SECONDS
                )
            age = self._oldest_age(queue, partition, position) if lag else 0.0
            host = self._host(queue, partition)
        except HootError as error:
            if not error.retryable:
                raise
            return SubscribedPartition(*place, None, None, None, None, parked)
        return SubscribedPartition(*place, MessageId(until or max(info.lastId, position)), lag, age, host, parked)

    def _oldest_age(self, queue: str, partition: int, position: int) -> float:
        """How old the first message above `position` is: the first batch there tells, or at worst its own position."""
        request = load_idl("delivery").ReadRequest(
            queue=queue, partition=partition, after=position, upTo=0, topics=[], bytesMax=1, waitMs=0
        )
        reply = self._calls.call(queue, partition, "read", request, timeout=LOOK_SECONDS)
        header = peek(reply.batches)
        if header is None:
            return 0.0
        oldest = MessageId(max(header.base_id, position + 1))
        return max(0.0, wall.seconds() - oldest.timestamp_ms / 1000)

    def _host(self, queue: str, partition: int) -> str:
        address, port = self._owners.address(queue, partition)
        return f"{address}:{port}"


def _is_over(replay: Replay | None, partitions: Iterable[SubscribedPartition]) -> bool:
    return replay is not None and all(
        one.position >= replay.end(one.partition) and not one.parked for one in partitions
    )


def changed(settings: QueueSettings, changes: dict[str, object]) -> QueueSettings:
    """`settings` with the named fields changed. Raises InvalidRequest for unknown fields and wrong types."""
    known: Sequence[str] = QueueSettings.__struct_fields__
    if unknown := sorted(set(changes) - set(known)):
        raise InvalidRequest(f"a queue has no setting {', '.join(unknown)}: it has {', '.join(known)}")
    try:
        return msgspec.convert({**msgspec.structs.asdict(settings), **changes}, QueueSettings)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"these settings cannot be: {error}") from None
