"""How far the workers of a host have come, and which of that is still to be saved (see `checkpoints`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from delivery.metastore.managers.changes import SaveState, Taken
from delivery.metastore.managers.records import Attempts, ParkedKey, Share, SubscriptionState
from delivery.metastore.tables.versions import Version

Place = tuple[str, int]
"""Queue and partition."""


class CheckpointKey(msgspec.Struct, frozen=True):
    """Whose position it is."""

    queue: str
    subscription: str
    partition: int

    @property
    def place(self) -> Place:
        """The partition."""
        return self.queue, self.partition


class Progress:
    """How far one worker has come: what is saved of it, and what is due. It counts until `over`."""

    __slots__ = ("_doubtful", "_due", "_failing", "_moved", "_parked", "_position", "_shares", "_state", "_version",
                 "key", "over", "saved_at")  # fmt: skip

    def __init__(
        self, key: CheckpointKey, taken: Taken, due: Callable[[Progress], None], moved: Callable[[], None]
    ) -> None:  # fmt: skip
        """`moved` is called when somebody else has moved the position: begin anew."""
        self.key = key
        self.over = False
        self.saved_at: float | None = None
        """When something of it was saved last, by the monotonic clock."""
        self._state, self._version = taken.value, taken.version
        self._position, self._failing, self._parked = taken.value.position, taken.value.failing, taken.value.parked
        self._shares = taken.value.shares
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

    def note_shares(self, position: int, shares: tuple[Share, ...]) -> None:
        """Of members who share the partition; `position` is the lowest of theirs."""
        if not self.over:
            self._position, self._shares = position, shares
            self._due(self)

    @property
    def has_news(self) -> bool:
        """Whether there is something to save still."""
        return not self.over and (self._doubtful is not None or self._newest() != self._state)

    @property
    def shares(self) -> tuple[Share, ...]:
        """Of members who share the partition, as saved."""
        return self._state.shares

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
            self._state, position=self._position, failing=self._failing, parked=self._parked, shares=self._shares
        )  # fmt: skip

    def saved(self, save: SaveState, version: Version) -> None:
        """It was."""
        self._state, self._version, self._doubtful = save.state, version, None
        self.saved_at = time.monotonic()

    def refused(self) -> None:
        """It was not, and for no reason that would have ended it."""
        self._doubtful = None

    def end(self, *, moved: bool = False) -> None:
        """Nothing of it counts from now on."""
        self.over = True
        if moved:
            self._moved()


class Due:
    """The workers whose position is to be saved, by key, and by partition."""

    __slots__ = ("_places", "_size")

    def __init__(self) -> None:
        self._places: dict[Place, dict[CheckpointKey, Progress]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: CheckpointKey) -> bool:
        return key in self._places.get(key.place, ())

    def __iter__(self) -> Iterator[CheckpointKey]:
        return (key for there in self._places.values() for key in there)

    def at(self, place: Place) -> list[CheckpointKey]:
        """Those in one partition."""
        return list(self._places.get(place, ()))

    def get(self, key: CheckpointKey) -> Progress | None:
        """The worker of that key, if it is due."""
        return self._places.get(key.place, {}).get(key)

    def put(self, progress: Progress) -> None:
        """It is due; it replaces the one that was due under its key."""
        there = self._places.setdefault(progress.key.place, {})
        self._size += progress.key not in there
        there[progress.key] = progress

    def pop(self, key: CheckpointKey) -> Progress | None:
        """It is due no longer: the worker that was, if any."""
        there = self._places.get(key.place, {})
        found = there.pop(key, None)
        if found is not None:
            self._size -= 1
            if not there:
                del self._places[key.place]
        return found
