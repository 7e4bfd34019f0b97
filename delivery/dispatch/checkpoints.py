"""The CheckpointKeeper: gathers the positions of all workers and saves them as states, many in one request.

A save counts only under the version that the last take or save of that state gave. Whoever becomes the owner of a
partition takes its states over first (`taking`), which moves their versions: from then on a former owner saves nothing,
whatever it believes, and what it saved before is what the new one found. So a save that is refused says why:

- Fenced: a newer epoch has the state. The worker's position counts for nothing any more, and the host looks whether it
  still owns the partition.
- BadVersion: it was changed under the same epoch, by an operator. The worker begins anew, where the state says.
- UnknownSubscription: it was deleted. A state names its subscription, so that nothing can become that of a later one.

What ZooKeeper could not take stays due; the newest position of a worker replaces the older. A save in doubt is made
again as it was before anything newer is saved: only the same state tells that the first try was done after all.

Of each state one save is on its way at a time, and nobody waits for those of others: a partition that goes to another
host stands still until its positions are saved, while a busy host has hundreds of others on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from delivery import hop, logs
from delivery.config import HostConfig
from delivery.dispatch.progress import CheckpointKey, Due, Place, Progress
from delivery.errors import BadVersion, Fenced, HootError, MetadataUnavailable, UnknownSubscription
from delivery.metastore.managers.changes import SaveState, Taken
from delivery.metastore.tables.versions import Version

log = logs.logger(__name__)


class States(Protocol):
    """Where states are kept (metastore.catalog.Catalog); blocking."""

    def save_states(self, saves: Sequence[SaveState]) -> list[Version | HootError]:
        """Save many, each by itself: its new version, or why not."""


class CheckpointKeeper:
    """Coalesces positions by count or time. `run` owns the saving task; `flush` saves what is due at once."""

    def __init__(self, store: States, config: HostConfig, on_fenced: Callable[[str, int], None]) -> None:
        """`on_fenced(queue, partition)` is told when another host has taken a state over."""
        self._store, self._config, self._on_fenced = store, config, on_fenced
        self._due = Due()
        self._noted = trio.lowlevel.ParkingLot()
        self._under_way: set[CheckpointKey] = set()
        self._written = trio.lowlevel.ParkingLot()
        self._hurried: set[Place] = set()
        self._hurrying = trio.Lock()

    @property
    def due(self) -> int:
        """Positions not yet saved."""
        return len(self._due)

    def begin(self, key: CheckpointKey, taken: Taken, moved: Callable[[], None]) -> Progress:
        """A worker goes on from a state that was taken over; `settle` before the taking."""
        if (before := self._due.pop(key)) is not None:
            before.end()
        return Progress(key, taken, self._note, moved)

    async def run(self) -> None:
        """Save what is due, every `checkpoint_interval_seconds` or `checkpoint_batch` positions, until cancelled."""
        while True:
            while not self._due:
                await self._noted.park()
            with trio.move_on_after(self._config.checkpoint_interval_seconds):
                while len(self._due) < self._config.checkpoint_batch:
                    await self._noted.park()
            if not await self.flush():
                await trio.sleep(self._config.reconnect_delay_max_seconds)

    async def settle(self, key: CheckpointKey) -> None:
        """Return when no position of this key is due here: the state is the last that this host knows.

        A worker that starts again under the same epoch would otherwise lose against a save of its own. Raises
        MetadataUnavailable when it cannot be saved now.
        """
        if key in self._due or key in self._under_way:
            await self.flush_partition(key.queue, key.partition)
        if key in self._due:
            raise MetadataUnavailable(
                f"the position of {key.subscription!r} in partition {key.partition} of {key.queue!r} is not saved yet"
            )

    async def flush(self) -> bool:
        """Save everything that is due now. False when it could not be; it stays due."""
        return await self._save([*self._due, *self._under_way])

    async def flush_partition(self, queue: str, partition: int) -> None:
        """Save the positions in one partition that are due now, ahead of all others; what could not be stays due.

        While some partitions are being saved, the next ones gather for one request.
        """
        place = (queue, partition)
        self._hurried.add(place)
        async with self._hurrying:
            if place not in self._hurried:
                return
            hurried, self._hurried = self._hurried, set()
            under_way = [key for key in self._under_way if key.place in hurried]
            try:
                await self._save([key for one in hurried for key in self._due.at(one)] + under_way)
            except BaseException:
                self._hurried |= hurried  # for those who wait
                raise

    async def _save(self, keys: Sequence[CheckpointKey]) -> bool:
        kept = True
        for start in range(0, len(keys), self._config.checkpoint_batch):
            kept = await self._save_together(keys[start : start + self._config.checkpoint_batch]) and kept
        return kept

    async def _save_together(self, keys: Sequence[CheckpointKey]) -> bool:
        while not self._under_way.isdisjoint(keys):
            await self._written.park()
        group = [one for key in keys if (one := self._due.pop(key)) is not None]
        doubtful = [one.key for one in group if one.in_doubt]
        kept = await self._write(group)
        # Of these a state of before was saved once more; the newest is still to come.
        return await self._save_together(doubtful) if kept and doubtful else kept

    def _note(self, progress: Progress) -> None:
        self._due.put(progress)
        if len(self._due) in (1, self._config.checkpoint_batch):
            self._noted.unpark_all()

    async def _write(self, group: Sequence[Progress]) -> bool:
        if not group:
            return True
        saves = [progress.save() for progress in group]
        keys = {progress.key for progress in group}
        self._under_way |= keys
        try:
            outcomes = await hop.run_sync(self._store.save_states, saves)
        except HootError as unavailable:
            outcomes = [unavailable] * len(group)
        except BaseException:
            self._keep(group)
            raise
        finally:
            self._under_way -= keys
            self._written.unpark_all()
        for progress, save, outcome in zip(group, saves, outcomes, strict=True):
            self._settle(progress, save, outcome)
        return not any(_is_to_be_tried_again(outcome) for outcome in outcomes)

    def _settle(self, progress: Progress, save: SaveState, outcome: Version | HootError) -> None:
        if progress.over:
            return
        key = progress.key
        if isinstance(outcome, Version):
            progress.saved(save, outcome)
            if progress.has_news:  # it was in doubt, and something newer came meanwhile
                self._keep([progress])
        elif _is_to_be_tried_again(outcome):
            self._keep([progress])
        elif isinstance(outcome, BadVersion | Fenced | UnknownSubscription):
            if self._due.get(key) is progress:
                self._due.pop(key)
            log.debug("the position of %s on %s/%d is dropped: %s", key.subscription, key.queue, key.partition, outcome)
            progress.end(moved=isinstance(outcome, BadVersion))
            if isinstance(outcome, Fenced):
                self._on_fenced(key.queue, key.partition)
        else:
            progress.refused()
            log.error("the position of %s on %s/%d: %s", key.subscription, key.queue, key.partition, outcome)

    def _keep(self, group: Sequence[Progress]) -> None:
        """Make them due again, and tell `run`, which may have found nothing to do while they were on their way."""
        for progress in group:
            if not progress.over and progress.key not in self._due:
                self._due.put(progress)
        self._noted.unpark_all()


def _is_to_be_tried_again(outcome: Version | HootError) -> bool:
    return isinstance(outcome, HootError) and outcome.retryable and not isinstance(outcome, BadVersion | Fenced)
