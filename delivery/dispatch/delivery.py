"""The delivery of one attached subscription: its link, and a worker for each partition that this host can own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

import msgspec
import trio

from delivery.config import HostConfig
from delivery.dispatch.checkpoints import CheckpointKeeper, CheckpointKey, Update
from delivery.dispatch.link import Link
from delivery.dispatch.plan import Attached
from delivery.dispatch.scanner import Source
from delivery.dispatch.sender import Counters, Stream
from delivery.dispatch.worker import SubscriptionWorker
from delivery.errors import HootError, NotOwner
from delivery.metastore.records import Checkpoint

log = logging.getLogger(__name__)

_CLAIM_PAUSE_SECONDS = 1.0
"""Between attempts to own a partition that another host holds or that could not be opened."""


_last_first_run = 0


def _first_run() -> int:
    """The first run of a new worker: above all runs of earlier ones, also when the clock steps back.

    By the clock, because a host that was started again may not know the runs of the one before it; a worker would have
    to fail a thousand times a second to catch up with its successor.
    """
    global _last_first_run  # noqa: PLW0603 - one sequence for all deliveries of the process
    _last_first_run = max(_last_first_run + 1, time.time_ns() // 1_000_000)
    return _last_first_run


class Owned(Protocol):
    """A partition of this host."""

    @property
    def epoch(self) -> int:
        """The epoch under which it is owned."""

    @property
    def version(self) -> int:
        """Of the owner's record, for the check beside each checkpoint."""

    @property
    def watermark(self) -> int:
        """The last id that is complete."""

    def source(self) -> Source:
        """A reader of it."""


class Partitions(Protocol):
    """Where partitions are acquired."""

    async def acquire(self, queue: str, partition: int) -> Owned:
        """Own the partition. Raises NotOwner while another host does, and the errors of the store and ZooKeeper."""


class Tools(msgspec.Struct, frozen=True):
    """What every delivery of a host shares."""

    partitions: Partitions
    keeper: CheckpointKeeper
    checkpoint: Callable[[CheckpointKey], Checkpoint | None]
    counters: Counters
    config: HostConfig


class Delivery:
    """Runs one attached subscription until cancelled or drained. A changed registration makes a new Delivery."""

    def __init__(self, attached: Attached, tools: Tools) -> None:
        self.attached = attached
        self._tools = tools
        record = attached.subscription
        self._queue, self._name = record.queue, record.name
        self._link = Link(record.queue, record.name, attached.listener, tools.config)
        self._topics = frozenset(record.topics)
        self._draining = False
        self.workers: dict[int, SubscriptionWorker] = {}

    async def run(self) -> None:
        """Serve every partition of the subscription. Returns after `drain`, when what is out has been answered."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._link.run)
            async with trio.open_nursery() as workers:
                for partition, start in self.attached.subscription.starts.items():
                    workers.start_soon(self._serve, partition, start)
            nursery.cancel_scope.cancel()

    def drain(self) -> None:
        """Scan no further; `run` ends when the listener has answered what is out."""
        self._draining = True
        for worker in self.workers.values():
            worker.drain()

    async def _serve(self, partition: int, start: int) -> None:
        reported = ""
        while not self._draining:
            try:
                await self._serve_owned(partition, start)
                reported = ""
            except HootError as error:
                if not isinstance(error, NotOwner) and reported != error.message:
                    log.warning("subscription %s on %s/%d waits: %s", self._name, self._queue, partition, error)
                    reported = error.message
            await trio.sleep(_CLAIM_PAUSE_SECONDS)

    async def _serve_owned(self, partition: int, start: int) -> None:
        owned = await self._tools.partitions.acquire(self._queue, partition)
        key = CheckpointKey(self._queue, self._name, partition)
        position = await self._position(key, start, owned.watermark)
        created_ms = self.attached.subscription.created_ms

        def moved(position: int) -> None:
            self._tools.keeper.note(Update(key, Checkpoint(position, owned.epoch, created_ms), owned.version))

        worker = SubscriptionWorker(
            Stream(self._queue, self._name, partition, owned.epoch), owned.source(), position=position,
            first_run=_first_run(), topics=self._topics, config=self._tools.config,
            counters=self._tools.counters, on_position=moved,
        )  # fmt: skip
        self.workers[partition] = worker
        try:
            await worker.run(self._link)
        finally:
            del self.workers[partition]

    async def _position(self, key: CheckpointKey, start: int, watermark: int) -> int:
        """Where to go on: the checkpoint, else the start that was asked for; never beyond what is stored."""
        await self._tools.keeper.flush()
        saved = await trio.to_thread.run_sync(self._tools.checkpoint, key)
        if saved is not None and not saved.is_of(self.attached.subscription):
            saved = None
        position = start if saved is None else saved.id
        if saved is not None and position > watermark:
            log.error(
                "subscription %s on %s/%d: its checkpoint %d is beyond the last stored id %d; going on there",
                self._name, self._queue, key.partition, position, watermark,
            )  # fmt: skip
            return watermark
        return position
