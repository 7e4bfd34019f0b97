"""Measuring how much the subscriptions of a host's partitions have before them, where a queue limits that.

Who is attached is delivered to by the owner of the partition, so its position is at hand. The others' positions are in
the metadata, where they change only when somebody moves them. What is in between `cluster.backlog` adds up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
import trio

from delivery import hop, logs
from delivery.cluster.backlog import Floor, lowest
from delivery.cluster.partition import OwnedPartition
from delivery.dispatch.crew import Crew
from delivery.dispatch.plan import Attached
from delivery.dispatch.worker import SubscriptionWorker
from delivery.errors import HootError
from delivery.metastore.awaited import Awaited, is_awaited
from delivery.metastore.records import QueueRecord
from delivery.storage.base import NOTHING, PartitionKey

log = logs.logger(__name__)

REFRESH_SECONDS: Final = 5.0
"""Between two looks at what nobody asks for."""
SAVED_SECONDS: Final = 1.0
"""Between two readings of the positions of those who are not attached: new ones come, and what is waited for goes."""
PAUSE_SECONDS: Final = 0.1
"""Between two measurings, however often one is asked for."""
REST: Final = 20.0
"""After reading the metadata, so many times as long as that took."""


class Delivering(Protocol):
    """A subscription that is delivered here (delivery.Delivery)."""

    @property
    def attached(self) -> Attached:
        """The subscription."""

    @property
    def workers(self) -> Mapping[int, SubscriptionWorker | Crew]:
        """By partition."""


class Records(Protocol):
    """Where positions are kept (metastore.catalog.Catalog); blocking."""

    def awaited(self, queue: str) -> Awaited:
        """How far the subscriptions of a queue are that its publishers may have to wait for."""


class _Saved(msgspec.Struct, frozen=True):
    """What the metadata said of a queue."""

    positions: Awaited
    at: float
    seconds: float
    """How long it took."""


class Backlogs:
    """For the trio thread. `run` owns the measuring."""

    def __init__(
        self, owned: Iterable[OwnedPartition], records: Records, delivering: Callable[[], Sequence[Delivering]]
    ) -> None:  # fmt: skip
        """`owned` are the partitions of this host at the time when it is iterated over."""
        self._owned, self._records, self._delivering = owned, records, delivering
        self._limited: dict[PartitionKey, OwnedPartition] = {}
        self._wanted: set[PartitionKey] = set()
        self._saved: dict[str, _Saved] = {}
        self._rung = trio.Event()

    def __iter__(self) -> Iterator[OwnedPartition]:
        return (owned for owned in list(self._limited.values()) if owned.feed.error is None)

    def taken(self, owned: OwnedPartition) -> None:
        """This host has become the owner of a partition."""
        if owned.settings.has_backlog_limit:
            self._limited[owned.key] = owned
            owned.backlog.ask = partial(self._ask, owned.key)
            self._ask(owned.key)
        else:
            self._limited.pop(owned.key, None)

    def queue_changed(self, before: QueueRecord, _: QueueRecord | None) -> None:
        """The settings of a queue may have changed, as those of its partitions have by now, or it is another one."""
        self._saved.pop(before.name, None)
        for owned in self._owned:
            if owned.key.queue == before.name:
                self.taken(owned)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure what is asked for soon, and the rest now and then, until cancelled."""
        task_status.started()
        refresh_at = trio.current_time() + REFRESH_SECONDS
        while True:
            with trio.move_on_at(refresh_at if self._limited else math.inf):
                await self._rung.wait()
            self._rung = trio.Event()
            wanted, self._wanted = self._wanted, set()
            if refreshing := trio.current_time() >= refresh_at:
                refresh_at = trio.current_time() + REFRESH_SECONDS
                self._limited = {owned.key: owned for owned in self}
                queues = {key.queue for key in self._limited}
                self._saved = {queue: one for queue, one in self._saved.items() if queue in queues}
                wanted = set(self._limited)
            await self._measure(wanted, trimmed=refreshing)
            await trio.sleep(PAUSE_SECONDS)

    def _ask(self, key: PartitionKey) -> None:
        self._wanted.add(key)
        self._rung.set()

    async def _measure(self, keys: Iterable[PartitionKey], *, trimmed: bool) -> None:
        """`trimmed`: retention may have dropped something."""
        serving = _by_queue(self._delivering())
        partitions: dict[str, list[OwnedPartition]] = {}
        for key in keys:
            if (owned := self._limited.get(key)) is not None and owned.feed.error is None:
                partitions.setdefault(key.queue, []).append(owned)
        for queue, some in partitions.items():
            try:
                saved = await self._positions(queue)
                for one in some:
                    await _measure_one(one, _floor(one.key.partition, saved, serving.get(queue, ())), trimmed=trimmed)
            except HootError as error:
                log.debug("how much the subscriptions of %s have before them cannot be told: %s", queue, error)

    async def _positions(self, queue: str) -> Awaited:
        """As they were saved, not long ago."""
        known, now = self._saved.get(queue), trio.current_time()
        if known is not None and now < known.at + max(SAVED_SECONDS, REST * known.seconds):
            return known.positions
        found = await hop.run_sync(self._records.awaited, queue)
        self._saved[queue] = _Saved(found, trio.current_time(), trio.current_time() - now)
        return found


def _by_queue(delivering: Iterable[Delivering]) -> dict[str, list[Delivering]]:
    found: dict[str, list[Delivering]] = {}
    for one in delivering:
        found.setdefault(one.attached.subscription.queue, []).append(one)
    return found


def _floor(partition: int, saved: Awaited, serving: Iterable[Delivering]) -> Floor | None:
    """Where the slowest subscription is that counts."""
    positions = {name: places[partition] for name, places in saved.items() if partition in places}
    for one in serving:
        worker, record = one.workers.get(partition), one.attached.subscription
        if not is_awaited(record):
            positions.pop(record.name, None)
        elif worker is not None:
            positions[record.name] = worker.position
    return lowest(positions)


async def _measure_one(owned: OwnedPartition, floor: Floor | None, *, trimmed: bool) -> None:
    """Nothing is read where the floor has not moved: what came since was added up."""
    backlog, settings = owned.backlog, owned.settings
    trimmed = trimmed and (settings.ttl_seconds is not None or settings.retention_bytes is not None)
    if floor is not None and not trimmed and floor == backlog.floor:
        return
    mark, watermark = backlog.mark(), owned.watermark
    found = NOTHING if floor is None else await owned.measure(floor.position, watermark)
    backlog.measured(mark, floor, found)
