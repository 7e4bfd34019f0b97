"""Connecting to Hoot: a Client holds the ZooKeeper session and the connections that its queues share."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Self

from delivery.client.admin import Admin, QueueInfo
from delivery.client.calls import CALL_SECONDS, Calls
from delivery.client.copying import QueueCopy
from delivery.client.deadletters import DeadLetterQueue
from delivery.client.forgetting import Forgetting
from delivery.client.hosts import Owners
from delivery.client.links import CONNECT_SECONDS
from delivery.client.managing import Manager, Managers
from delivery.client.placement import Placement
from delivery.client.queue import Queue
from delivery.client.subscribing import SubscriptionsFace
from delivery.client.transactions import Transaction
from delivery.errors import Closed, UnknownQueue
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.policy import dead_letter_queue
from delivery.metastore.records import HostRecord, QueueRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import Layout, QueueSettings
from delivery.rpc.pool import Pool
from delivery.transactions.asks import check_timeout
from delivery.transactions.limits import TIMEOUT_MS


def connect(zookeeper: str = "127.0.0.1:2181", *, session_timeout: float = 10.0, deadline: float = 5.0) -> Client:
    """A Client of the Hoot that this ZooKeeper (`host:port,…/folder`) knows. Close it, or use it as a context manager.

    A call to ZooKeeper takes at most `deadline` seconds. Raises MetadataUnavailable when none answers by then, or when
    all refuse the connection for a second; ConfigError when `zookeeper` cannot be read.
    """
    session = ZooKeeperClient(zookeeper, session_timeout=session_timeout, deadline=deadline)
    session.start()
    return Client(session)


class Client(SubscriptionsFace):
    """Queues, subscriptions and their administration. Thread-safe, not for use after a fork.

    `close` closes all that came from it.
    """

    def __init__(
        self, session: ZooKeeperClient, catalog: Catalog | None = None, calls: Calls | None = None
    ) -> None:  # fmt: skip
        """Takes over a session that was started; `connect` makes one. `catalog` and `calls` are for the test kit."""
        self._session = session
        self._pool = Pool(connect_deadline=CONNECT_SECONDS, call_deadline=CALL_SECONDS)
        self._catalog = catalog or open_catalog(session)
        self._owners = Owners(self._catalog)
        self._calls = calls or Calls(self._owners, self._pool)
        self._manager = Manager(
            Calls(Managers(self._catalog), self._pool), Forgetting(self._catalog, self._calls).before_ms
        )
        self._admin = Admin(self._catalog, self._owners, self._calls)
        self._placement = Placement(self._catalog, self._owners, self._calls, self._pool)
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._former: list[Queue] = []
        """As they were before their settings were changed: who has them goes on with them."""
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
            queues = [*self._queues.values(), *self._former]
            self._queues.clear()
        for queue in queues:
            queue.close()
        self._pool.close()
        self._catalog.close()
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
        generation = self._open().delete_queue(name)
        with self._lock:
            gone = self._queues.get(name)
            if gone is None or gone.record.generation != generation:  # another thread has made it anew already
                return
            del self._queues[name]
        gone.close()

    def copy_queue(self, queue: str, target: Client, name: str, *, layout: Layout | None = None) -> QueueCopy:
        """Copy a queue to another one, of this cluster or of another client's; see docs/copying.md.

        Nothing has been done then: `bring` is a round, `switch` the end. The target must not be there, or be such a
        copy. Raises UnknownQueue, QueueExists, InvalidRequest.
        """
        return QueueCopy(self._open().side, queue, target._open().side, name, layout)

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

    def transaction(self, timeout: float = TIMEOUT_MS / 1000) -> Transaction:
        """Begin a transaction, a context manager (docs/transactions.md); invalid after `timeout` seconds (up to 600).

        Raises InvalidRequest, Throttled, NoHost, HostUnreachable, MetadataUnavailable.
        """
        self._open()
        begun = self._manager.begin(check_timeout(round(timeout * 1000)).timeout_ms)
        return Transaction(begun, self._manager, self._calls, self._transactional, timeout)

    @property
    def transactions(self) -> Manager:
        """How transactions stand, what one sees now, ending and pruning them. Raises Closed."""
        self._open()
        return self._manager

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

    def _transactional(self, name: str) -> Queue:
        """A queue that transactions publish to. Raises UnknownQueue."""
        self._open()
        return self._queue_of(self._catalog.mark_transactional(name))

    def _committed(self) -> bytes:
        return self._manager.view()

    def _open(self) -> Admin:
        if self._closed:
            raise Closed("the client is closed")
        return self._admin

    def _queue_of(self, record: QueueRecord) -> Queue:
        """The Queue object of a record: one for all callers, as long as the queue stays what it is.

        A record that differs from what is known may be the older one, read before another thread made the queue anew.
        So it is read once more before anything is replaced. Raises UnknownQueue.
        """
        read_since: Queue | None = None
        while True:
            found, former = self._known_or_made(record, read_since)
            if found is None:
                read_since, record = former, self._admin.queue_record(record.name)
                continue
            if former is not None:
                former.close()  # it was deleted
            return found

    def _known_or_made(self, record: QueueRecord, read_since: Queue | None) -> tuple[Queue | None, Queue | None]:
        """The Queue object of a record, and that of a deleted queue, whose place it has taken.

        None, and what is known, where that differs and is not what the record was `read_since`.
        """
        with self._lock:
            if self._closed:
                raise Closed("the client is closed")
            known = self._queues.get(record.name)
            if known is not None and record.serves_as(known.record):
                return known, None
            if known is not None and known is not read_since:
                return None, known
            made = self._queues[record.name] = self._make_queue(record)
            if known is not None and known.record.generation == record.generation:
                self._former.append(known)
                known = None
        return made, known

    def _make_queue(self, record: QueueRecord) -> Queue:
        look = partial(self._admin.queue_record, record.name)
        return Queue(record, self._owners, self._calls, look, self._committed)
