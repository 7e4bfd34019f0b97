"""The host's view of the attached subscriptions (the seed's SubscriptionZooKeeper, section 3.5.3).

A watch is a hint that something about a queue may have changed; what counts is the full read that follows. Every
`reconcile_seconds` all queues are read without any hint, so that a lost one costs time and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from delivery.dispatch.plan import Attached
from delivery.errors import CorruptRecord, HootError, UnknownQueue
from delivery.metastore import records
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import QueueRecord
from delivery.metastore.zookeeper import ZooKeeperClient

log = logging.getLogger(__name__)


class SubscriptionWatch:
    """Reads what is attached, queue by queue, and knows which queues to read again. Reading blocks: use a thread."""

    def __init__(self, zookeeper: ZooKeeperClient, catalog: Catalog) -> None:
        self._zookeeper, self._catalog = zookeeper, catalog
        self._stale: set[str] = set()
        self._all_stale = True
        self._hinted = trio.Event()
        self._watched: set[str] = set()
        self._complained: set[str] = set()
        self._post: Callable[[Callable[[], None]], None] = lambda _: None

    def begin(self) -> None:
        """Remember the trio thread that hints are handed to, and watch the hosts. Call once, on that thread."""
        token = trio.lowlevel.current_trio_token()

        def post(hint: Callable[[], None]) -> None:
            try:
                token.run_sync_soon(hint, idempotent=False)
            except trio.RunFinishedError:
                log.debug("a hint came after the end")

        self._post = post

    async def changed(self, seconds: float) -> None:
        """Return at the next hint, or after `seconds` with everything due to be read again."""
        with trio.move_on_after(seconds) as waiting:
            await self._hinted.wait()
        if waiting.cancelled_caught:
            self._all_stale = True

    def hint(self, queue: str | None = None) -> None:
        """Something about `queue`, or about which queues or hosts there are, may have changed. On the trio thread."""
        if queue is None:
            self._all_stale = True
        else:
            self._stale.add(queue)
        self._hinted.set()

    async def read(self, known: frozenset[str]) -> dict[str, dict[str, Attached]]:
        """Per queue that may have changed, what is attached to it; a queue that is gone is there, and empty.

        Raises MetadataUnavailable; then everything asked for stays due.
        """
        stale, everything = self._stale, self._all_stale
        self._stale, self._all_stale, self._hinted = set(), False, trio.Event()
        try:
            return await trio.to_thread.run_sync(self._read, stale, everything, known)
        except HootError:
            self._stale |= stale
            self._all_stale |= everything
            raise

    def _read(self, stale: set[str], everything: bool, known: frozenset[str]) -> dict[str, dict[str, Attached]]:
        if everything:
            self._watch(records.QUEUES, None)
            self._watch(records.HOSTS, None)
            stale = stale | known | set(self._catalog.queues())
        return {queue: self._read_queue(queue) for queue in stale}

    def _read_queue(self, queue: str) -> dict[str, Attached]:
        """What is attached to a queue; nothing to one that is deleted, even while it is read."""
        try:
            record = self._catalog.queue(queue)
            self._watch(records.listeners_path(queue), queue)
            names = self._catalog.listeners(queue)
            return {name: found for name in names if (found := self._read_one(record, name))}
        except UnknownQueue:
            self._unwatch(queue)
        except CorruptRecord as error:
            self._complain(error)
        return {}

    def _read_one(self, queue: QueueRecord, name: str) -> Attached | None:
        self._watch(records.subscription_path(queue.name, name), queue.name, value=True)
        self._watch(records.listener_path(queue.name, name), queue.name, value=True)
        try:
            subscription = self._catalog.subscription(queue.name, name)
            listener = self._catalog.listener(queue.name, name)
        except CorruptRecord as error:
            self._complain(error)
            return None
        if subscription is None or listener is None or subscription.generation != queue.generation:
            return None
        return Attached(queue.generation, subscription, listener)

    def _watch(self, path: str, queue: str | None, *, value: bool = False) -> None:
        if path in self._watched:
            return
        hint = partial(self._post, partial(self.hint, queue))
        (self._zookeeper.watch_value if value else self._zookeeper.watch_children)(path, hint)
        self._watched.add(path)

    def _unwatch(self, queue: str) -> None:
        below = records.queue_path(queue) + "/"
        for path in [path for path in self._watched if path.startswith(below)]:
            self._zookeeper.unwatch(path)
            self._watched.discard(path)

    def _complain(self, error: CorruptRecord) -> None:
        if error.message not in self._complained:
            log.error("%s; it is left alone until it is mended", error.message)
            self._complained.add(error.message)
