"""Connecting to Hoot: a Client holds the ZooKeeper session and the connections that its queues share."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from delivery.client.admin import Admin, QueueInfo, SubscriptionInfo
from delivery.client.calls import CALL_SECONDS, Calls
from delivery.client.deadletters import DeadLetterQueue
from delivery.client.filtering import Explained, change
from delivery.client.hosts import Owners
from delivery.client.links import CONNECT_SECONDS
from delivery.client.placement import Placement
from delivery.client.positions import Move
from delivery.client.queue import Queue
from delivery.client.replays import Stretch
from delivery.errors import Closed, UnknownQueue
from delivery.filters import KEEP, FilterGiven, TopicsGiven
from delivery.ids import Start
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.groups import Kind
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.managers.snapshots import Snapshot
from delivery.metastore.policy import RetryGiven, dead_letter_queue
from delivery.metastore.records import HostRecord, QueueRecord, SubscriptionRecord
from delivery.metastore.replays import Speed
from delivery.metastore.request import Partitions, check_request
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from delivery.rpc.pool import Pool


def connect(zookeeper: str = "127.0.0.1:2181", *, session_timeout: float = 10.0, deadline: float = 5.0) -> Client:
    """A Client of the Hoot that this ZooKeeper (`host:port,…/folder`) knows. Close it, or use it as a context manager.

    A call to ZooKeeper takes at most `deadline` seconds. Raises MetadataUnavailable when none answers by then, or when
    all refuse the connection for a second; ConfigError when `zookeeper` cannot be read.
    """
    session = ZooKeeperClient(zookeeper, session_timeout=session_timeout, deadline=deadline)
    session.start()
    return Client(session)


class Client:
    """Queues and their administration. Thread-safe, not for use after a fork. `close` closes all that came from it."""

    def __init__(
        self, session: ZooKeeperClient, catalog: Catalog | None = None, calls: Calls | None = None
    ) -> None:  # fmt: skip
        """Takes over a session that was started; `connect` makes one. `catalog` and `calls` are for the test kit."""
        self._session = session
        self._pool = Pool(connect_deadline=CONNECT_SECONDS, call_deadline=CALL_SECONDS)
        self._catalog = catalog or open_catalog(session)
        self._owners = Owners(self._catalog)
        self._calls = calls or Calls(self._owners, self._pool)
        self._admin = Admin(self._catalog, self._owners, self._calls)
        self._placement = Placement(self._catalog, self._owners, self._calls, self._pool)
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the queues' publishers (flushing them) and all connections. Closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            queues = list(self._queues.values())
            self._queues.clear()
        for queue in queues:
            queue.close()
        self._pool.close()
        self._session.stop()

    def queue(self, name: str) -> Queue:
        """The queue. Raises UnknownQueue, naming what comes near, and InvalidRequest for what is no name."""
        return self._queue_of(self._open().queue_record(name))

    def create_queue(self, name: str, settings: QueueSettings | None = None, /, **changes: Any) -> Queue:  # noqa: ANN401
        """Create a queue with `settings`, or with the fields of QueueSettings as keywords, and give it.

        Raises QueueExists, InvalidRequest.
        """
        return self._queue_of(self._open().create_queue(name, settings, changes))

    def update_queue(
        self, name: str, settings: QueueSettings | None = None, /, **changes: Any  # noqa: ANN401
    ) -> QueueRecord:  # fmt: skip
        """Change settings: what is not named stays. Raises UnknownQueue, and InvalidRequest for other partitions."""
        return self._open().update_queue(name, settings, changes)

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages and subscriptions. Raises UnknownQueue."""
        self._open().delete_queue(name)
        with self._lock:
            gone = self._queues.pop(name, None)
        if gone is not None:
            gone.close()

    def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return self._open().queues()

    def queue_record(self, name: str) -> QueueRecord:
        """A queue's record: settings, generation, creation. Raises UnknownQueue."""
        return self._open().queue_record(name)

    def queue_records(self) -> list[QueueRecord]:
        """The records of all queues, by name."""
        return self._open().queue_records()

    def queue_info(self, name: str) -> QueueInfo:
        """A queue with its subscriptions and what each partition holds. Raises UnknownQueue."""
        return self._open().queue_info(name)

    def hosts(self) -> list[HostRecord]:
        """The live region hosts."""
        return self._open().hosts()

    @property
    def placement(self) -> Placement:
        """Which host owns what, and moving it. Raises Closed."""
        self._open()
        return self._placement

    def subscriptions(self, queue: str) -> list[str]:
        """The names of a queue's subscriptions, attached or not, sorted. Raises UnknownQueue."""
        return self._open().subscriptions(queue)

    def subscription_info(self, queue: str, name: str) -> SubscriptionInfo:
        """How far a subscription has got, and who is attached. Raises UnknownQueue, UnknownSubscription."""
        return self._open().subscription_info(queue, name)

    def seek(
        self, queue: str, name: str, to: Start, *, partitions: Iterable[int] | None = None, force: bool = False,
        dry_run: bool = False,
    ) -> list[Move]:  # fmt: skip
        """Move a subscription to another place, in all its partitions or in `partitions`; gives the moves.

        Backwards, its listeners hear messages again; forwards, those in between are skipped. A time or an id beyond a
        partition's end means its end. `force` moves it while a subscriber is attached, which goes on at the new place;
        what is in its callbacks at that moment is still handled. What is parked is forgotten (docs/retries.md).
        `dry_run` changes nothing.

        Raises UnknownQueue, UnknownSubscription, UnknownPartition, InvalidRequest for an id beyond the ends of all
        partitions, SubscriptionBusy. Nothing has changed then. Say it again after MetadataUnavailable.
        """
        return self._open().seek(queue, name, to, partitions, force=force, dry_run=dry_run)

    def create_snapshot(self, queue: str, name: str, snapshot: str, *, dry_run: bool = False) -> Snapshot:
        """Keep where a subscription stands under a name, with what is parked; gives that, as it was saved last.

        It is durable, and gone with the subscription; `dry_run` keeps nothing. Raises SnapshotExists, UnknownQueue,
        UnknownSubscription; InvalidRequest for the name, and beyond 32 snapshots or 512 KiB of them.
        """
        return self._open().snapshots.create(queue, name, snapshot, dry_run=dry_run)

    def snapshots(self, queue: str, name: str) -> dict[str, Snapshot]:
        """A subscription's snapshots by name, the oldest first. Raises UnknownQueue, UnknownSubscription."""
        return self._open().snapshots.all(queue, name)

    def snapshot(self, queue: str, name: str, snapshot: str) -> Snapshot:
        """One of a subscription's snapshots. Raises UnknownSnapshot, and as `snapshots`."""
        return self._open().snapshots.one(queue, name, snapshot)

    def restore_snapshot(
        self, queue: str, name: str, snapshot: str, *, force: bool = False, dry_run: bool = False
    ) -> list[Move]:
        """Move a subscription to where it stood; gives the moves. As `seek`, but what was parked then is so again.

        Partitions that were not subscribed to at that time stay where they are. Raises UnknownSnapshot, and as `seek`.
        """
        return self._open().snapshots.restore(queue, name, snapshot, force=force, dry_run=dry_run)

    def delete_snapshot(self, queue: str, name: str, snapshot: str) -> None:
        """Forget a snapshot. Raises UnknownSnapshot, UnknownQueue, UnknownSubscription."""
        self._open().snapshots.delete(queue, name, snapshot)

    def replay(
        self, queue: str, name: str, into: str, *, start: Start, end: Start = "latest", speed: Speed = "original",
        filter: FilterGiven = KEEP, dry_run: bool = False,
    ) -> list[Stretch]:  # fmt: skip
        """Make the subscription `into`, which delivers what lies between two places of the queue again, and then ends.

        It is a shadow of the subscription `name`, with its partitions, topics and retry policy, and its filter unless
        another is given; `name` itself goes on untouched. The messages from `start` on and before `end` come at
        `speed`: "original" for that of their publishing, how many times that, or "max". `dry_run` makes nothing.

        Raises SubscriptionExists, UnknownQueue, UnknownSubscription; InvalidRequest when no message lies in between;
        NoHost and HostUnreachable when a partition cannot be asked.
        """
        return self._open().replays.replay(
            queue, name, into, start=start, end=end, speed=speed, filter_=filter, dry_run=dry_run
        )

    def promote(self, queue: str, shadow: str, *, force: bool = False, dry_run: bool = False) -> tuple[str, list[Move]]:
        """Put the subscription that `shadow` is a replay of to where that stands, and delete `shadow`.

        Gives the name of that subscription, and its moves; what is parked of `shadow` is parked of it then. `force`
        does it also while a subscriber is attached to one of them: that of `shadow` is detached for good. When it
        breaks off, say it again.

        Raises InvalidRequest when `shadow` is no replay, UnknownSubscription when one of the two is not there,
        SubscriptionBusy; nothing has changed then.
        """
        return self._open().replays.promote(queue, shadow, force=force, dry_run=dry_run)

    def create_subscription(
        self, queue: str, name: str, *, partitions: Partitions = None, topics: TopicsGiven = None,
        filter: FilterGiven = None, start: Start | Mapping[int, Start] = "latest", retry: RetryGiven = None,
        kind: Kind = "exclusive", bound: int = 0,
    ) -> SubscriptionRecord:  # fmt: skip
        """Create a subscription to which nobody is attached yet: what is published from its start on waits for them.

        `partitions`, `topics`, `filter`, `start`, `retry`, `kind` and `bound` as in Subscriber.subscribe. Raises
        SubscriptionExists, UnknownQueue, UnknownPartition, InvalidRequest; NoHost and HostUnreachable when a start has
        to be asked for.
        """
        request = check_request(queue, partitions, topics, start, filter, retry=retry, kind=kind, bound=bound)
        return self._open().create_subscription(name, request)

    def update_subscription(
        self, queue: str, name: str, *,
        topics: TopicsGiven = KEEP, filter: FilterGiven = KEEP, retry: RetryGiven = None, bound: int | None = None,
        dry_run: bool = False,
    ) -> SubscriptionRecord:  # fmt: skip
        """Change what a subscription takes, attached or not; its workers follow at once, from their checkpoints on.

        `topics` are names and patterns, `filter` an expression or a rule (docs/filters.md); None takes one away, what
        is left out stays. `retry` is a policy, or a mapping of those of its fields that are to change (None in it: the
        default); an attached subscriber hears of another `order` or `timeout_seconds` within half a minute. `bound` as
        in Subscriber.subscribe. What is out at that moment may still be handled under the old preferences. Gives them
        as they are then; `dry_run` changes nothing.

        Raises InvalidRequest (where it does not parse, and what to write), UnknownQueue, UnknownSubscription.
        """
        return self._open().update_subscription(queue, name, change(topics, filter, retry, bound), dry_run=dry_run)

    def explain(self, queue: str, name: str, message: int, partition: int | None = None) -> list[Explained]:
        """Why a subscription takes the message with this id, or does not: one answer for each partition that holds it.

        Raises UnknownQueue, UnknownSubscription, UnknownPartition; InvalidRequest when no partition holds the message;
        CorruptRecord for a message that is damaged.
        """
        return self._open().explain(queue, name, message, partition)

    def delete_subscription(self, queue: str, name: str) -> None:
        """Delete a subscription with its checkpoints; its workers stop. Raises UnknownQueue, UnknownSubscription."""
        self._open().delete_subscription(queue, name)

    def parked(self, queue: str, subscription: str) -> list[tuple[int, ParkedKey]]:
        """The keys of a subscription that wait, with their partitions. Raises UnknownQueue, UnknownSubscription."""
        return self._open().parked(queue, subscription)

    def release(self, queue: str, subscription: str, keys: Collection[bytes] | None = None) -> int:
        """Have these parked keys, or all that is parked, come again now; gives how many. Raises as `parked`."""
        return self._open().release(queue, subscription, keys)

    def dead_letters(self, queue: str, subscription: str) -> DeadLetterQueue:
        """The messages that a subscription gave up, also after it was deleted.

        Raises UnknownQueue; UnknownSubscription when it neither is there nor has left any.
        """
        found, name = self.queue(queue), dead_letter_queue(queue, subscription)

        def find() -> Queue | None:
            try:
                return self.queue(name)
            except UnknownQueue:
                self._open().check_subscription(queue, subscription)
                return None

        find()
        return DeadLetterQueue(found, find)

    def _open(self) -> Admin:
        if self._closed:
            raise Closed("the client is closed")
        return self._admin

    def _queue_of(self, record: QueueRecord) -> Queue:
        """The Queue object of a record: one for all callers, as long as the queue stays what it is."""
        with self._lock:
            if self._closed:
                raise Closed("the client is closed")
            known = self._queues.get(record.name)
            if known is not None and known.record == record:
                return known
            made = self._queues[record.name] = self._make_queue(record)
        if known is not None and known.record.generation != record.generation:
            known.close()  # it was deleted; with other settings it goes on for those who have it
        return made

    def _make_queue(self, record: QueueRecord) -> Queue:
        return Queue(record, self._owners, self._calls, lambda: self._admin.queue_record(record.name))
