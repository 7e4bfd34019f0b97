"""The queues that this host has to do with: their records in memory, kept true by watches.

A host learns a queue when it is first asked for, and at its start those that its store holds data of: the end of a
queue, which takes the data along, must be heard of by whoever has it. The others, a million perhaps, cost nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from delivery.cluster.bell import Doorbell
from delivery.cluster.leftovers import sort_out
from delivery.cluster.rounds import Rounds
from delivery.errors import CorruptRecord, HootError, MetadataUnavailable, Throttled, UnknownQueue
from delivery.metastore.records import QueueRecord
from delivery.metastore.tables.base import Watcher
from delivery.model import check_name, is_generation

log = logging.getLogger(__name__)

Changed = Callable[[QueueRecord, QueueRecord | None], None]
Held = Callable[[], Sequence[tuple[str, str]]]

_PAUSE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 5.0
_GONE_SECONDS: Final = 0.25
_GONE_MAX: Final = 1000
_UNWATCHED_SECONDS: Final = 30.0
"""How often queues are read that cannot be watched, because their record is damaged or too much is watched."""


class QueueRecords(Protocol):
    """Where queue records are read (metastore.catalog.Catalog); blocking."""

    @property
    def is_laid_out(self) -> bool:
        """Whether there is any metadata of Hoot."""

    def queue(self, name: str, watch: Watcher | None = None) -> QueueRecord:
        """A queue; `watch` is called once, at its next change, from another thread. Raises UnknownQueue."""

    def read_queues(self, names: Sequence[str]) -> list[QueueRecord | CorruptRecord | None]:
        """Many of them."""


class QueueTable:
    """The queue records in memory. For the trio thread; `run` owns the watching."""

    def __init__(self, catalog: QueueRecords, held: Held) -> None:
        """`held` gives the (queue, generation) that the store has data of; blocking."""
        self._catalog, self._held = catalog, held
        self._reading = Rounds[str, QueueRecord](self._read_new)
        self._known: dict[str, QueueRecord] = {}
        self._stale: set[str] = set()
        self._unwatched: set[str] = set()
        self._watched: set[str] = set()
        """Those with a watch that has not fired: there is room for some thousands, and each reading is not another."""
        self._gone: dict[tuple[str, str], float] = {}
        """Generations that were looked for in vain, and until when that is believed."""
        self._refreshing: str | None = None
        """What `run` is reading now; None, too, when a caller has learned of it meanwhile, which may be later news."""
        self._refreshed = trio.lowlevel.ParkingLot()
        self._bell: Doorbell | None = None
        self._on_change: list[Changed] = []

    def on_change(self, callback: Changed) -> None:
        """Call `callback(before, after)` when a known queue's record changed; `after` is None when the queue is gone.

        A queue that was deleted and created again is reported as gone; the new one is another queue.
        """
        self._on_change.append(callback)

    def names(self) -> list[str]:
        """The queues known now, sorted."""
        return sorted(self._known)

    async def get(self, name: str, generation: str = "") -> QueueRecord:
        """The queue's record, from memory when it is known; with a `generation` only that one, which is looked for.

        Raises UnknownQueue, InvalidRequest for a bad name, MetadataUnavailable.
        """
        record = await self._get(name)
        if is_generation(record.generation, generation):
            return record
        if self._gone.get((name, generation), -math.inf) < trio.current_time():
            if not await self.look(name):
                raise MetadataUnavailable(
                    f"queue {name!r} may be a new one of this name, and ZooKeeper does not answer"
                )
            record = await self._get(name)
            if record.generation == generation:
                return record
            self._note_gone(name, generation)
        raise UnknownQueue(f"queue {name!r} was deleted; another one of this name was created")

    def _note_gone(self, name: str, generation: str) -> None:
        """Who goes on asking for it costs no more reads for a moment, and holds up nobody."""
        if len(self._gone) >= _GONE_MAX:
            self._gone.clear()
        self._gone[name, generation] = trio.current_time() + _GONE_SECONDS

    async def _get(self, name: str) -> QueueRecord:
        known = self._known.get(name)
        if known is not None:
            return known
        record = await self._reading.ask(check_name("queue", name))
        if name not in self._known:  # else `run` has read it in the meantime, and later
            self._learn(name, record)
            self._hint(name)
            self._refreshing = None if self._refreshing == name else self._refreshing
        return self._known[name]

    async def look(self, name: str) -> bool:
        """Return when `run` has read a queue anew that has just changed; False when it cannot, after some seconds."""
        if name in self._known:
            self._hint(name)
            with trio.move_on_after(_LOOK_SECONDS) as waiting:
                while name in self._stale or name == self._refreshing:
                    await self._refreshed.park()
            return not waiting.cancelled_caught
        return True

    def _read_new(self, names: Sequence[str]) -> list[QueueRecord | HootError]:
        """The queues that were asked for, each one once: a subscription asks for one queue as often as it is wide."""
        once = list(dict.fromkeys(names))
        found = dict(zip(once, self._catalog.read_queues(once), strict=True))
        settled = {name: self._missing(name) if record is None else record for name, record in found.items()}
        return [settled[name] for name in names]

    def _missing(self, name: str) -> QueueRecord | HootError:
        try:
            return self._catalog.queue(name)  # which knows what may have been meant
        except HootError as error:
            return error

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Learn the queues that the store holds, report started, and follow their changes until cancelled.

        Raises if it cannot at first.
        """
        self._bell = Doorbell()
        await self._learn_held()
        task_status.started()
        while True:
            try:
                await self._refresh()
            except HootError as error:
                log.warning("the queues cannot be read: %s", error)
                await trio.sleep(_PAUSE_SECONDS)
                continue
            with trio.move_on_after(_UNWATCHED_SECONDS if self._unwatched else math.inf):
                await self._bell.wait()
                continue
            self._stale |= self._unwatched

    async def _learn_held(self) -> None:
        held = await trio.to_thread.run_sync(self._held)
        found = await trio.to_thread.run_sync(sort_out, held, self._catalog)
        for record in found.known:
            self._learn(record.name, record)
            self._stale.add(record.name)
        if left := found.left:
            log.warning("the store holds data of %d queues that are not there, such as %s: `hoot queue purge` shows and"
                        " deletes it", len(left), left[0][0])  # fmt: skip

    def _hint(self, name: str) -> None:
        self._stale.add(name)
        if self._bell is not None:
            self._bell.ring()

    async def _refresh(self) -> None:
        """Read what may have changed, and watch it. On an error everything that was not read stays due."""
        while self._stale:
            name = min(self._stale)
            self._stale.discard(name)
            self._refreshing = name
            try:
                found = await trio.to_thread.run_sync(self._read, name, partial(self._changed, name))
            except BaseException:
                self._stale.add(name)
                self._refreshing = None
                raise
            if self._refreshing == name:  # else it is stale, and read again
                for record in found:
                    self._learn(name, record)
            self._refreshing = None
            self._refreshed.unpark_all()

    def _changed(self, name: str, _: object) -> None:
        """The watch of a queue fired, on another thread."""
        self._watched.discard(name)
        if self._bell is not None:
            self._bell.post(partial(self._hint, name))

    def _read(self, name: str, watch: Watcher) -> list[QueueRecord | None]:
        self._unwatched.discard(name)
        try:
            record = self._catalog.queue(name)  # so that what is gone is not watched
            try:
                return [record if name in self._watched else self._read_watching(name, watch)]
            except Throttled:
                self._unwatched.add(name)
                return [record]
        except UnknownQueue:
            self._check_tree()
            return [None]
        except CorruptRecord as error:
            log.error("queue %r is left alone until it is mended: %s", name, error)
            self._unwatched.add(name)
            return []

    def _read_watching(self, name: str, watch: Watcher) -> QueueRecord:
        self._watched.add(name)  # before: it may fire at once
        try:
            return self._catalog.queue(name, watch)
        except BaseException:
            self._watched.discard(name)
            raise

    def _check_tree(self) -> None:
        """A queue that is gone takes its data along, so the loss of all metadata must not look like that."""
        if not self._catalog.is_laid_out:
            raise MetadataUnavailable(
                "ZooKeeper holds nothing of Hoot any more; the queues are kept as they were known"
            )

    def _learn(self, name: str, record: QueueRecord | None) -> None:
        before = self._known.get(name)
        if record is None:
            self._known.pop(name, None)
        else:
            self._known[name] = record
        if before is not None and (record is None or not record.serves_as(before)):
            same = record if record is not None and record.generation == before.generation else None
            for callback in self._on_change:
                callback(before, same)
