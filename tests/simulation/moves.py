"""What holds of positions that are moved by hand, checked as it happens: the invariants of docs/positions.md.

I15  a position is moved by hand only to where somebody wanted it, with what was parked there, and no save of before
     comes after that; a snapshot stays what it was, and is of a moment that was; a promotion moves every partition
I16  a replay delivers what is stored in its stretch and nothing else
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.records import SubscriptionRecord
from tests.simulation.history import Entry
from tests.simulation.operator import REAL

Place = tuple[int, object]
"""A position, and what is parked."""
_LAST_WISHES = 2
"""A try that was given up may land while the next command is on its way."""


class Moves:
    """Of one run. `fail(invariant, text)` ends it."""

    def __init__(self, records: Iterable[SubscriptionRecord], fail: Callable[[str, str], None]) -> None:
        self._fail = fail
        self._stood: dict[tuple[str, int], list[Place]] = {
            (record.name, partition): [(start, ())] for record in records for partition, start in record.starts.items()
        }
        """Where each has stood at some time."""
        self.moved: dict[tuple[str, int], int] = {}
        """How often, by the number of the last move."""
        self._wishes: dict[int, deque[Callable[[Place], bool]]] = {}
        """What is allowed of the real subscription's positions, by partition."""
        self._snapshots: dict[str, object] = {}
        self._promotions: dict[str, dict[int, int]] = {}
        """By shadow, the moves when it began to be promoted."""
        self._ears: Mapping[str, Callable[[Any], None]] = {
            "seeks": self._wishes_for, "restores": self._restores, "snapshot": self._snapshot,
            "promotes": self._promotes, "promoted": self._promoted,
        }  # fmt: skip

    def begin(self, record: SubscriptionRecord) -> None:
        """A shadow is there."""
        for partition, start in record.starts.items():
            self._stood.setdefault((record.name, partition), [(start, ())])

    def hear(self, entry: Entry) -> None:
        """Of what the operator does."""
        ear = self._ears.get(entry.kind)
        if ear is not None:
            ear(entry.facts)

    def saved(self, name: str, partition: int, state: SubscriptionState) -> bool:
        """A state was written; whether that was a move."""
        key, place = (name, partition), (state.position, state.parked)
        before = self.moved.get(key, 0)
        if state.moves < before:
            self._fail("I15", f"{name}/{partition} is back at {state.position}, from before move {before}")
        if state.moves > before:
            self.moved[key] = state.moves
            if name != REAL or not any(fits(place) for fits in self._wishes.get(partition, ())):
                self._fail("I15", f"{name}/{partition} was moved to {place}, which nobody asked for")
        self._stood[key].append(place)
        return state.moves > before

    def _wish(self, partition: int, fits: Callable[[Place], bool]) -> None:
        self._wishes.setdefault(partition, deque(maxlen=_LAST_WISHES)).append(fits)

    def _wishes_for(self, facts: Any) -> None:
        for partition, position, parked in facts[1]:
            self._wish(partition, (position, parked).__eq__)

    def _restores(self, facts: Any) -> None:
        _, places, snapshot = facts
        if self._snapshots.get(snapshot) != places:
            self._fail("I15", f"snapshot {snapshot} is {places} now, and was {self._snapshots.get(snapshot)}")
        self._wishes_for(facts)

    def _snapshot(self, facts: Any) -> None:
        name, places = facts
        for partition, position, parked in places:
            if (position, parked) not in self._stood[REAL, partition]:
                self._fail("I15", f"snapshot {name} has {position} of partition {partition}, where nobody stood")
        self._snapshots[name] = places

    def _promotes(self, facts: Any) -> None:
        (shadow,) = facts
        partitions = [partition for name, partition in self._stood if name == shadow]
        self._promotions.setdefault(shadow, {one: self.moved.get((REAL, one), 0) for one in partitions})
        for partition in partitions:
            self._wish(
                partition, partial(_has_stood, self._stood[shadow, partition], len(self._stood[shadow, partition]))
            )

    def _promoted(self, facts: Any) -> None:
        (shadow,) = facts
        for partition, before in self._promotions[shadow].items():
            if self.moved.get((REAL, partition), 0) <= before:
                self._fail("I15", f"{shadow} was promoted, and {REAL}/{partition} was not moved")


def _has_stood(stood: list[Place], before: int, place: Place) -> bool:
    """Whether a shadow is there, or was since so many places were known of it."""
    return place in stood[before - 1 :]
