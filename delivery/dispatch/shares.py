"""Who has what of a partition that several members share by key, and how far each is: plain decisions.

A *part* is some slots that have come equally far, in the hands of one member. It changes hands only while its member
handles nothing of it, so that nobody gets a message of a key whose earlier ones are somewhere else; the one who gets it
goes on where the other one ended, once it is saved that it is there: a new owner knows by that who may be handling what
the former one pushed. The position of the partition is that of the part which is furthest behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from delivery.metastore.groups import assign
from delivery.metastore.managers.records import Attempts, ParkedKey, Share
from delivery.metastore.slots import ALL, SLOTS, Ranges, as_ranges, in_ranges, slot_of


class Part(msgspec.Struct):
    """Slots that are equally far."""

    member: str
    """Empty for nobody yet."""
    slots: frozenset[int]
    position: int
    failing: Attempts | None
    ranges: Ranges
    served: bool = False
    """Whether its member is being sent messages of it."""


class Lane(msgspec.Struct, frozen=True):
    """What a member is to be sent from now on."""

    parts: tuple[Part, ...]
    slots: frozenset[int]
    """Of all parts."""
    failing: Attempts | None
    parked: tuple[ParkedKey, ...]

    @property
    def position(self) -> int:
        """Everything in its slots up to here is acknowledged."""
        return min(part.position for part in self.parts)


class Shares:
    """Of one partition of one subscription."""

    def __init__(self, saved: Sequence[Share], position: int, parked: Sequence[ParkedKey]) -> None:
        """As a state has it: without shares all slots are at its position, and nobody's."""
        self._parts = [_part(one.member, in_ranges(one.slots), one.position, one.failing) for one in saved]
        self._parts = self._parts or [_part("", ALL, position, None)]
        self._wanted: dict[str, frozenset[int]] = {}
        self._kept = _by_member(saved)
        self.parked = tuple(parked)

    @property
    def position(self) -> int:
        """Everything up to here was acknowledged, given up, or is parked, by whoever had it."""
        return min(part.position for part in self._parts)

    def saved(self) -> tuple[Share, ...]:
        """As a state has it."""
        return tuple(Share(part.member, part.ranges, part.position, part.failing) for part in self._parts)

    def want(self, members: Collection[str]) -> None:
        """Spread the slots evenly over these members, of which there must be one; as few as possible are to move."""
        if self._wanted.keys() == set(members):
            return
        before = self._wanted or {name: self._of(name) for name in {part.member for part in self._parts}}
        found = assign("shared", members, range(SLOTS), {name: tuple(slots) for name, slots in before.items()})
        self._wanted = {name: frozenset(slots) for name, slots in found.items()}

    def has_surplus(self, member: str) -> bool:
        """Whether it has what others are to get."""
        return not self._of(member) <= self._wanted.get(member, frozenset())

    def has_news(self, member: str) -> bool:
        """Whether it has surplus, or can be sent something that it is not sent yet."""
        return self.has_surplus(member) or any(not part.served for part in self._ready(member))

    @property
    def are_kept(self) -> bool:
        """Whether it is known to be saved of every slot who has it."""
        return all(self._is_kept(part) for part in self._parts)

    def keep(self, saved: Sequence[Share]) -> None:
        """This is saved: from now on a new owner knows whom to ask."""
        self._kept = _by_member(saved)

    def hand_over(self, member: str) -> None:
        """What others are to get is theirs now; nothing that it has may be served."""
        for part in [part for part in self._parts if part.member == member]:
            assert not part.served, "it may still handle messages of it"
            self._parts.remove(part)
            for name, slots in self._wanted.items():
                if mine := part.slots & slots:
                    self._parts.append(_part(name, mine, part.position, part.failing))

    def hand_over_all_but(self, members: Collection[str]) -> None:
        """What is in the hands of anybody else is theirs whom it was meant for."""
        for name in {part.member for part in self._parts}.difference(members):
            self.hand_over(name)

    # -- what a member is sent

    def begin(self, member: str) -> Lane | None:
        """Send a member what it has, as far as that is kept, until `end`; None when that is nothing."""
        together: dict[int, list[Part]] = {}
        for part in self._ready(member):
            self._parts.remove(part)
            together.setdefault(part.position, []).append(part)
        parts = [_merged(same) for same in together.values()]
        if not parts:
            return None
        for part in parts:
            part.served = True
        self._parts += parts
        slots = _slots_of(parts)
        parked = tuple(one for one in self.parked if slot_of(one.key, one.ids[0]) in slots)
        return Lane(tuple(parts), slots, _failing_of(parts), parked)

    def end(self, lane: Lane) -> None:
        """It is sent nothing more."""
        for part in lane.parts:
            part.served = False

    def note(self, lane: Lane, position: int) -> None:
        """Everything in the lane up to there was acknowledged."""
        for part in lane.parts:
            part.position = max(part.position, position)

    def note_failing(self, lane: Lane, failing: Attempts | None) -> None:
        """What was tried with the first message behind its position."""
        for part in lane.parts:
            part.failing = failing

    def note_parked(self, lane: Lane, parked: Iterable[ParkedKey]) -> None:
        """What is parked in its slots."""
        others = (one for one in self.parked if slot_of(one.key, one.ids[0]) not in lane.slots)
        self.parked = (*others, *parked)

    def _is_kept(self, part: Part) -> bool:
        return part.slots <= self._kept.get(part.member, frozenset())

    def _ready(self, member: str) -> list[Part]:
        """What it can be sent."""
        return [part for part in self._parts if part.member == member and self._is_kept(part)]

    def _of(self, member: str) -> frozenset[int]:
        return _slots_of([part for part in self._parts if part.member == member])


def _part(member: str, slots: frozenset[int], position: int, failing: Attempts | None) -> Part:
    return Part(member, slots, position, failing, as_ranges(slots))


def _by_member(saved: Sequence[Share]) -> dict[str, frozenset[int]]:
    ranges: dict[str, list[tuple[int, int]]] = {}
    for one in saved:
        ranges.setdefault(one.member, []).extend(one.slots)
    return {name: in_ranges(those) for name, those in ranges.items()}


def _merged(parts: Sequence[Part]) -> Part:
    """Parts of one member that are equally far, as one."""
    if len(parts) == 1:
        return parts[0]
    return _part(parts[0].member, _slots_of(parts), parts[0].position, _failing_of(parts))


def _slots_of(parts: Iterable[Part]) -> frozenset[int]:
    return frozenset[int]().union(*(part.slots for part in parts))


def _failing_of(parts: Iterable[Part]) -> Attempts | None:
    """What was tried with the first message that any of them waits for."""
    return next((part.failing for part in sorted(parts, key=lambda part: part.position) if part.failing), None)
