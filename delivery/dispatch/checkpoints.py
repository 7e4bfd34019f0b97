"""The CheckpointKeeper: gathers the positions of all workers and writes them to ZooKeeper, many in one `multi`.

Each write checks the version of the partition's owner record: a host that lost the partition cannot move a checkpoint,
whatever it believes. Positions that could not be written stay due; the newest of a worker replaces the older. One of a
subscription that was deleted is dropped: it names its subscription, so that it cannot become that of a later one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import trio

from delivery.config import HostConfig
from delivery.errors import BadVersion, Fenced, HootError, UnknownSubscription
from delivery.metastore.records import Checkpoint

log = logging.getLogger(__name__)


class CheckpointKey(msgspec.Struct, frozen=True):
    """Whose position it is."""

    queue: str
    subscription: str
    partition: int


class Update(msgspec.Struct, frozen=True):
    """One checkpoint to write, valid only while the partition record has `partition_version`."""

    key: CheckpointKey
    checkpoint: Checkpoint
    partition_version: int


class Checkpoints(Protocol):
    """Where checkpoints are kept; blocking."""

    def save_checkpoints(self, updates: Sequence[Update]) -> list[HootError | None]:
        """Write them together, or one by one when one of them fails; answers each."""


class CheckpointKeeper:
    """Coalesces checkpoints by count or time. `run` owns the writing task; `flush` writes what is due at once."""

    def __init__(self, store: Checkpoints, config: HostConfig, on_fenced: Callable[[str, int], None]) -> None:
        """`on_fenced(queue, partition)` is told when ZooKeeper says that another host owns the partition."""
        self._store, self._config, self._on_fenced = store, config, on_fenced
        self._due: dict[CheckpointKey, Update] = {}
        self._noted = trio.lowlevel.ParkingLot()
        self._writing = trio.Lock()

    @property
    def due(self) -> int:
        """Positions not yet in ZooKeeper."""
        return len(self._due)

    def note(self, update: Update) -> None:
        """A worker's position moved. Costs a dictionary entry."""
        self._due[update.key] = update
        if len(self._due) in (1, self._config.checkpoint_batch):
            self._noted.unpark_all()

    async def run(self) -> None:
        """Write what is due, every `checkpoint_interval_seconds` or `checkpoint_batch` positions, until cancelled."""
        while True:
            while not self._due:
                await self._noted.park()
            with trio.move_on_after(self._config.checkpoint_interval_seconds):
                while len(self._due) < self._config.checkpoint_batch:
                    await self._noted.park()
            if not await self.flush():
                await trio.sleep(self._config.reconnect_delay_max_seconds)

    async def settle(self, key: CheckpointKey) -> None:
        """Return when no position of this key is due here: what is in ZooKeeper is the last that this host knows."""
        if key in self._due or self._writing.locked():
            await self.flush()

    async def flush(self) -> bool:
        """Write everything that is due now. False when ZooKeeper could not take it; it stays due."""
        async with self._writing:
            due, self._due = self._due, {}
            updates = list(due.values())
            kept = True
            for start in range(0, len(updates), self._config.checkpoint_batch):
                group = updates[start : start + self._config.checkpoint_batch]
                kept = await self._write(group) and kept
            return kept

    async def _write(self, group: list[Update]) -> bool:
        try:
            errors = await trio.to_thread.run_sync(self._store.save_checkpoints, group)
        except HootError as unavailable:
            errors = [unavailable] * len(group)
        except BaseException:
            self._keep(group)
            raise
        failed = [(update, error) for update, error in zip(group, errors, strict=True) if error is not None]
        for update, error in failed:
            self._settle(update, error)
        return not any(error.retryable and not isinstance(error, BadVersion | Fenced) for _, error in failed)

    def _settle(self, update: Update, error: HootError) -> None:
        key = update.key
        if isinstance(error, BadVersion | Fenced):
            self._on_fenced(key.queue, key.partition)
        elif isinstance(error, UnknownSubscription):
            log.debug("checkpoint of %s on %s/%d dropped: unsubscribed", key.subscription, key.queue, key.partition)
        elif error.retryable:
            self._keep([update])
        else:
            log.error("checkpoint of %s on %s/%d: %s", key.subscription, key.queue, key.partition, error)

    def _keep(self, updates: list[Update]) -> None:
        for update in updates:
            self._due.setdefault(update.key, update)
