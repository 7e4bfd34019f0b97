"""What is done to the state of a subscription in a partition: it is taken over, saved, or moved by hand."""

from __future__ import annotations

import msgspec

from delivery.errors import BadVersion, CorruptRecord, Fenced, HootError, UnknownPartition
from delivery.metastore.managers.records import ParkedKey, SubscriptionState
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables.versions import Version, Versioned

Taken = Versioned[SubscriptionState]
"""What an owner needs to go on: the position, and the version to save the next one with."""


class TakeState(msgspec.Struct, frozen=True):
    """A subscription's state in a partition, to be taken over under an epoch."""

    preferences: SubscriptionRecord
    partition: int
    epoch: int

    def next(self, found: Taken | CorruptRecord | None) -> SubscriptionState | HootError:
        """The state that the new owner writes over what was found."""
        wanted = self.preferences
        if isinstance(found, CorruptRecord):
            return found
        if self.partition not in wanted.starts:
            return not_read(wanted, self.partition)
        if found is not None and found.value.generation == wanted.generation and found.value.epoch > self.epoch:
            return fenced(wanted.queue, self.partition)
        if found is not None and found.value.is_of(wanted):
            state = found.value if wanted.kind == "key_shared" else found.value.without_shares()
            return msgspec.structs.replace(state, epoch=self.epoch)
        return SubscriptionState(wanted.starts[self.partition], self.epoch, wanted.generation, wanted.created_ms)


class MoveState(msgspec.Struct, frozen=True):
    """A position to be moved by hand, whoever owns the partition."""

    preferences: SubscriptionRecord
    partition: int
    position: int
    moves: int
    """Higher than that of the state now: by its number, a subscriber tells a move from what it has handled."""
    parked: tuple[ParkedKey, ...] = ()
    """Of the messages up to the position, as a snapshot kept them."""
    anyhow: bool = False
    """Whatever number the state has, as a copy that nobody has been delivered yet is put right."""

    def next(self, found: Taken | CorruptRecord | None) -> SubscriptionState | HootError:
        """The state to write over what was found: the owner keeps it, but not under the version that it knows.

        Nothing has failed in it, and what was parked is so no more: what lies behind the new position comes again as
        all does.
        """
        wanted = self.preferences
        if isinstance(found, CorruptRecord):
            return found
        if self.partition not in wanted.starts:
            return not_read(wanted, self.partition)
        before = found.value if found is not None and found.value.is_of(wanted) else None
        if before is not None and before.moves >= self.moves and not self.anyhow:
            return BadVersion(f"partition {self.partition} was moved by somebody else, under the number {before.moves}")
        return SubscriptionState(
            self.position,
            0 if before is None else before.epoch,
            wanted.generation,
            wanted.created_ms,
            self.moves,
            parked=self.parked,
        )


class SaveState(msgspec.Struct, frozen=True):
    """A state to save, with the version that the last `take_state` or `save_state` gave."""

    queue: str
    name: str
    partition: int
    state: SubscriptionState
    version: Version


def not_read(preferences: SubscriptionRecord, partition: int) -> UnknownPartition:
    """Why nothing is kept of a partition."""
    return UnknownPartition(f"subscription {preferences.name!r} does not read partition {partition}")


def fenced(queue: str, partition: int) -> Fenced:
    """Why a former owner changes nothing."""
    return Fenced(f"partition {partition} of queue {queue!r} has another owner now")
