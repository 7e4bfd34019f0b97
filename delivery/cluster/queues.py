"""The queues as this host knows them: a mirror of their records in ZooKeeper, kept true by hints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import trio

from delivery.cluster.handover import Doorbell
from delivery.errors import HootError, MetadataUnavailable, UnknownQueue
from delivery.metastore import records
from delivery.metastore.records import QueueRecord

log = logging.getLogger(__name__)

Hint = Callable[[], None]
Changed = Callable[[QueueRecord, QueueRecord | None], None]

_PAUSE_SECONDS: Final = 1.0


class Watching(Protocol):
    """ZooKeeper's watches (metastore.zookeeper.ZooKeeperClient), as used here. Hints come from other threads."""

    def watch_children(self, path: str, hint: Hint) -> None:
        """Give a hint now and whenever the children of `path` may have changed."""

    def watch_value(self, path: str, hint: Hint) -> None:
        """Give a hint now and whenever `path` may have changed."""

    def unwatch(self, path: str) -> None:
        """No more hints about `path`."""

    def exists(self, path: str) -> bool:
        """Whether there is such a znode."""


class QueueRecords(Protocol):
    """Where queue records are read (metastore.catalog.Catalog); blocking."""

    def queue(self, name: str) -> QueueRecord:
        """A queue. Raises UnknownQueue."""

    def queues(self) -> list[str]:
        """All names."""


class QueueTable:
    """The queue records in memory. For the trio thread; `run` owns the watching."""

    def __init__(self, watching: Watching, catalog: QueueRecords) -> None:
        self._watching, self._catalog = watching, catalog
        self._known: dict[str, QueueRecord] = {}
        self._stale: set[str] = set()
        self._list_stale = False
        self._bell: Doorbell | None = None
        self._on_change: list[Changed] = []

    def on_change(self, callback: Changed) -> None:
        """Call `callback(before, after)` when a queue's record changed; `after` is None when the queue is gone.

        A queue that was deleted and created again is reported as gone; the new one is another queue.
        """
        self._on_change.append(callback)

    def names(self) -> list[str]:
        """The queues known now, sorted."""
        return sorted(self._known)

    async def get(self, name: str) -> QueueRecord:
        """The queue's record, from memory when it is known. Raises UnknownQueue, InvalidRequest for a bad name."""
        known = self._known.get(name)
        if known is not None:
            return known
        record = await trio.to_thread.run_sync(self._catalog.queue, name)
        if name not in self._known:  # else `run` has read it in the meantime, and later
            self._learn(name, record)
        return self._known[name]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Learn all queues, report started, and follow their changes until cancelled. Raises if it cannot at first."""
        self._bell = Doorbell()
        self._watching.watch_children(records.QUEUES, partial(self._bell.post, self._hint_list))
        self._list_stale = True
        await self._refresh()
        task_status.started()
        while True:
            await self._bell.wait()
            try:
                await self._refresh()
            except HootError as error:
                log.warning("the queues cannot be read: %s", error)
                await trio.sleep(_PAUSE_SECONDS)
                self._bell.ring()

    def _hint_list(self) -> None:
        self._list_stale = True
        self._ring()

    def _hint_queue(self, name: str) -> None:
        self._stale.add(name)
        self._ring()

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.ring()

    async def _refresh(self) -> None:
        """Read what may have changed. On an error everything stays due."""
        list_stale, stale = self._list_stale, self._stale
        self._list_stale, self._stale = False, set()
        try:
            found = await trio.to_thread.run_sync(self._read, list_stale, stale, frozenset(self._known))
        except BaseException:
            self._list_stale |= list_stale
            self._stale |= stale
            raise
        for name, record in found.items():
            self._learn(name, record)

    def _read(self, list_stale: bool, stale: set[str], known: frozenset[str]) -> dict[str, QueueRecord | None]:
        if list_stale:
            stale = stale | (known ^ frozenset(self._catalog.queues()))
        return {name: record for name in stale for record in self._read_one(name)}

    def _read_one(self, name: str) -> list[QueueRecord | None]:
        try:
            return [self._catalog.queue(name)]
        except UnknownQueue:
            self._check_tree()
            return [None]
        except HootError as error:
            if error.retryable:
                raise
            log.error("queue %r is left alone until it is mended: %s", name, error)
            return []

    def _check_tree(self) -> None:
        """A queue that is gone takes its data along, so all of ZooKeeper having been lost must not look like that."""
        if not self._watching.exists(records.LAYOUT):
            raise MetadataUnavailable(
                "ZooKeeper holds nothing of Hoot any more; the queues are kept as they were known"
            )

    def _learn(self, name: str, record: QueueRecord | None) -> None:
        before = self._known.get(name)
        if record is None:
            self._known.pop(name, None)
            self._watching.unwatch(records.queue_path(name))
        else:
            self._known[name] = record
            if before is None and self._bell is not None:
                hint = partial(self._bell.post, partial(self._hint_queue, name))
                self._watching.watch_value(records.queue_path(name), hint)
        if before is not None and before != record:
            same = record if record is not None and record.generation == before.generation else None
            for callback in self._on_change:
                callback(before, same)
