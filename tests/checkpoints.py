"""A CheckpointKeeper over states that are saved, refused or lost as a test says."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from delivery.config import HostConfig
from delivery.dispatch.checkpoints import CheckpointKeeper
from delivery.dispatch.progress import CheckpointKey, Progress
from delivery.errors import BadVersion, HootError, MetadataUnavailable
from delivery.metastore.managers.changes import SaveState, Taken
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.tables.versions import Version, Versioned

CONFIG = HostConfig(checkpoint_interval_seconds=0.05, checkpoint_batch=10, reconnect_delay_max_seconds=0.05)


class ScriptedStates:
    """Remembers each save; fails as told."""

    def __init__(self) -> None:
        self.writes: list[dict[CheckpointKey, int]] = []
        self.begun = 0
        """Requests that have passed, or come to, the gate of their time."""
        self.away = 0
        self.refused: dict[CheckpointKey, HootError] = {}
        self.versions: dict[CheckpointKey, int] = {}
        self.lose_answer = False
        self.gate: threading.Event | None = None
        self.states: dict[CheckpointKey, SubscriptionState] = {}

    def save_states(self, saves: Sequence[SaveState]) -> list[Version | HootError]:
        gate = self.gate
        self.begun += 1
        if gate is not None:
            assert gate.wait(10)
        if self.away:
            self.away -= 1
            raise MetadataUnavailable("ZooKeeper is away")
        outcomes = [self._save(save) for save in saves]
        self.writes.append(
            {
                key_of(save): save.state.position
                for save, outcome in zip(saves, outcomes, strict=True)
                if isinstance(outcome, Version)
            }
        )
        if self.lose_answer:
            self.lose_answer = False
            raise MetadataUnavailable("the answer is lost")
        return outcomes

    def _save(self, save: SaveState) -> Version | HootError:
        where = key_of(save)
        if where in self.refused:
            return self.refused[where]
        version = self.versions.get(where, 0)
        if save.version != Version(version):
            return Version(version) if self.states[where] == save.state else BadVersion("changed by another")
        self.versions[where], self.states[where] = version + 1, save.state
        return Version(version + 1)

    def saved(self) -> dict[CheckpointKey, int]:
        return {key: position for write in self.writes for key, position in write.items()}


def key(partition: int, subscription: str = "mail") -> CheckpointKey:
    return CheckpointKey("orders", subscription, partition)


def key_of(save: SaveState) -> CheckpointKey:
    return CheckpointKey(save.queue, save.name, save.partition)


def taken(position: int = 0, version: int = 0) -> Taken:
    return Versioned(SubscriptionState(position, 1, "g", 7), Version(version))


class Kept(CheckpointKeeper):
    """A keeper with a worker for each partition that is noted, and what it told them."""

    def __init__(self, store: ScriptedStates, config: HostConfig = CONFIG) -> None:
        self.fenced: list[tuple[str, int]] = []
        super().__init__(store, config, lambda *place: self.fenced.append(place))
        self.moved: list[int] = []
        self.workers: dict[int, Progress] = {}

    def note(self, partition: int, position: int) -> None:
        if partition not in self.workers:
            self.start(partition, taken())
        self.workers[partition].note(position)

    def start(self, partition: int, found: Taken) -> None:
        self.workers[partition] = self.begin(key(partition), found, lambda: self.moved.append(partition))
