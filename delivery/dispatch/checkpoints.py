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
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import trio

from delivery.config import HostConfig
from delivery.errors import BadVersion, Fenced, HootError, MetadataUnavailable, UnknownSubscription
from delivery.metastore.managers.records import Attempts, ParkedKey, SubscriptionState
from delivery.metastore.managers.states import SaveState, Taken
from delivery.metastore.tables.versions import Version

log = logging.getLogger(__name__)


class CheckpointKey(msgspec.Struct, frozen=True):
    """Whose position it is."""

    queue: str
    subscription: str
    partition: int


class States(Protocol):
    """Where states are kept (metastore.catalog.Catalog); blocking."""

    def save_states(self, saves: Sequence[SaveState]) -> list[Version | HootError]:
        """Save many, each by itself: its new version, or why not."""


class Progress:
    """How far one worker has come: what is saved of it, and what is due. It counts until `over`."""

    __slots__ = ("_doubtful", "_due", "_failing", "_moved", "_parked", "_position", "_state", "_version", "key", "over")

    def __init__(
        self, key: CheckpointKey, taken: Taken, due: Callable[[Progress], None], moved: Callable[[], None]
    ) -> None:  # fmt: skip
        """`moved` is called when somebody else has moved the position: begin anew."""
        self.key = key
        self.over = False
        self._state, self._version = taken.value, taken.version
        self._position, self._failing, self._parked = taken.value.position, taken.value.failing, taken.value.parked
        self._doubtful: SubscriptionState | None = None
        self._due, self._moved = due, moved

    def note(self, position: int) -> None:
        """The position moved. Costs a dictionary entry."""
        if not self.over:
            self._position = position
            self._due(self)

    def note_failing(self, failing: Attempts | None) -> None:
        """The first message behind the position failed; None: no longer."""
        if not self.over and failing != self._failing:
            self._failing = failing
            self._due(self)

    def note_parked(self, parked: tuple[ParkedKey, ...]) -> None:
        """What is parked changed; a position that moves with it is to be noted in the same turn of the loop."""
        if not self.over:
            self._parked = parked
            self._due(self)

    @property
    def has_news(self) -> bool:
        """Whether there is something to save still."""
        return not self.over and (self._doubtful is not None or self._newest() != self._state)

    @property
    def in_doubt(self) -> bool:
        """Whether a save was tried, and nobody knows whether it was done."""
        return self._doubtful is not None

    def save(self) -> SaveState:
        """What to save next."""
        self._doubtful = self._doubtful or self._newest()  # until there is an answer
        key = self.key
        return SaveState(key.queue, key.subscription, key.partition, self._doubtful, self._version)

    def _newest(self) -> SubscriptionState:
        return msgspec.structs.replace(
            self._state, position=self._position, failing=self._failing, parked=self._parked
        )  # fmt: skip

    def saved(self, save: SaveState, version: Version) -> None:
        """It was."""
        self._state, self._version, self._doubtful = save.state, version, None

    def refused(self) -> None:
        """It was not, and for no reason that would have ended it."""
        self._doubtful = None

    def end(self, *, moved: bool = False) -> None:
        """Nothing of it counts from now on."""
        self.over = True
        if moved:
            self._moved()


class CheckpointKeeper:
    """Coalesces positions by count or time. `run` owns the saving task; `flush` saves what is due at once."""

    def __init__(self, store: States, config: HostConfig, on_fenced: Callable[[str, int], None]) -> None:
        """`on_fenced(queue, partition)` is told when another host has taken a state over."""
        self._store, self._config, self._on_fenced = store, config, on_fenced
        self._due: dict[CheckpointKey, Progress] = {}
        self._noted = trio.lowlevel.ParkingLot()
        self._writing = trio.Lock()

    @property
    def due(self) -> int:
        """Positions not yet saved."""
        return len(self._due)

    def begin(self, key: CheckpointKey, taken: Taken, moved: Callable[[], None]) -> Progress:
        """A worker goes on from a state that was taken over; `settle` before the taking."""
        if (before := self._due.pop(key, None)) is not None:
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
        if key in self._due or self._writing.locked():
            await self.flush()
        if key in self._due:
            raise MetadataUnavailable(
                f"the position of {key.subscription!r} in partition {key.partition} of {key.queue!r} is not saved yet"
            )

    async def flush(self) -> bool:
        """Save everything that is due now. False when it could not be; it stays due."""
        async with self._writing:
            due, self._due = self._due, {}
            doubtful = [progress for progress in due.values() if progress.in_doubt]
            if not await self._write_all(list(due.values())):
                return False
            # Of these a state of before was saved once more; the newest is still to come.
            return await self._write_all([one for one in doubtful if self._due.pop(one.key, None) is one])

    async def _write_all(self, due: list[Progress]) -> bool:
        kept = True
        for start in range(0, len(due), self._config.checkpoint_batch):
            group = due[start : start + self._config.checkpoint_batch]
            kept = await self._write(group) and kept
        return kept

    def _note(self, progress: Progress) -> None:
        self._due[progress.key] = progress
        if len(self._due) in (1, self._config.checkpoint_batch):
            self._noted.unpark_all()

    async def _write(self, group: list[Progress]) -> bool:
        saves = [progress.save() for progress in group]
        try:
            outcomes = await trio.to_thread.run_sync(self._store.save_states, saves)
        except HootError as unavailable:
            outcomes = [unavailable] * len(group)
        except BaseException:
            self._keep(group)
            raise
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
                del self._due[key]
            log.debug("the position of %s on %s/%d is dropped: %s", key.subscription, key.queue, key.partition, outcome)
            progress.end(moved=isinstance(outcome, BadVersion))
            if isinstance(outcome, Fenced):
                self._on_fenced(key.queue, key.partition)
        else:
            progress.refused()
            log.error("the position of %s on %s/%d: %s", key.subscription, key.queue, key.partition, outcome)

    def _keep(self, group: list[Progress]) -> None:
        for progress in group:
            if not progress.over:
                self._due.setdefault(progress.key, progress)


def _is_to_be_tried_again(outcome: Version | HootError) -> bool:
    return isinstance(outcome, HootError) and outcome.retryable and not isinstance(outcome, BadVersion | Fenced)
