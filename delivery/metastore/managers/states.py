"""How far each subscription has come in each partition (seed 000, the subscription state): the hot half of the data.

A MetaStore has no transaction over several keys, so the owner's epoch cannot be checked by the write itself. Instead,
whoever becomes the owner of a partition first takes over the states in it: it writes each anew, with its own epoch. The
version that a former owner holds is then no longer the state's, and its next save fails, whenever it comes. So at most
one owner can save at any time, and what an owner saved before it was fenced is what the next one reads.

Where the state of another subscription of the name is found, the preferences tell which of the two is left over: an
owner may not have heard yet that its own one was deleted and made again, and moved by hand since.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import msgspec

from delivery.errors import BadVersion, CorruptRecord, HootError, UnknownSubscription
from delivery.metastore.errors import KeyExists, NoKey
from delivery.metastore.managers.changes import MoveState, SaveState, Taken, TakeState, fenced
from delivery.metastore.managers.queues import remove_all
from delivery.metastore.managers.records import (
    AFTER,
    SEPARATOR,
    Codec,
    SubscriptionState,
    check_state,
    state_key,
    subscription_key,
)
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables.base import MetaStore, MetastoreCursor, MetastoreTableItem, Put, Remove
from delivery.metastore.tables.versions import Version, Versioned
from delivery.model import check_name

TABLE = "states"
ATTEMPTS: Final = 100
"""To take a state over from an owner that goes on saving it: each time that one was faster, it has saved some more."""

_ENTRIES: Final = 500
_CODEC = Codec("state", SubscriptionState, check_state, TABLE)


class SubscriptionStates(ABC):
    """The states of subscriptions. Blocking and thread-safe; of a subscription in a partition, one saves at a time."""

    def __init__(self, store: MetaStore) -> None:
        self._table = store.create_scannable_table(TABLE)

    def take_state(self, preferences: SubscriptionRecord, partition: int, epoch: int) -> Taken:
        """Take over the state under the epoch of the new owner: from now on no former owner saves it.

        One that is not there yet begins at the subscription's start. Raises Fenced when a newer epoch has it,
        UnknownPartition when the subscription does not read it, UnknownSubscription when it was deleted and a later one
        of its name has a state, BadVersion when others keep changing it, CorruptRecord.
        """
        return _taken(self.take_states([TakeState(preferences, partition, epoch)])[0])

    def take_states(self, takes: Sequence[TakeState]) -> list[Taken | HootError]:
        """Many in few requests, each by itself: what `take_state` gives or raises."""
        return self._alter(takes)

    def move_states(self, moves: Sequence[MoveState]) -> list[Taken | HootError]:
        """Put positions elsewhere, each by itself: the new state, or why not.

        An owner's next save is refused then with BadVersion: it reads the state again. UnknownPartition when the
        subscription does not read it, CorruptRecord. BadVersion when others keep changing it, or have moved it under
        such a number.
        """
        return self._alter(moves)

    def save_state(self, save: SaveState) -> Version:
        """Save a position; gives the version for the next time.

        Raises Fenced when a newer owner has taken it over; BadVersion when the same epoch's state was changed by
        another, an operator for one: read it again; UnknownSubscription when it was deleted. MetadataUnavailable: it
        may have been saved. Saving the same state again settles that.
        """
        outcome = self.save_states([save])[0]
        if isinstance(outcome, HootError):
            raise outcome
        return outcome

    def save_states(self, saves: Sequence[SaveState]) -> list[Version | HootError]:
        """Many in few requests, each by itself: what `save_state` gives or raises."""
        puts = [
            Put(state_key(one.queue, one.name, one.partition), _CODEC.encode(one.state), one.version, whole=True)
            for one in saves
        ]
        outcomes = self._table.put_many(puts)
        doubtful = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, BadVersion | NoKey | KeyExists)]
        if not doubtful:
            return outcomes
        left_over: dict[int, Put] = {}
        for at, found in zip(doubtful, self._read([puts[at].key for at in doubtful]), strict=True):
            outcomes[at] = _why_not_saved(saves[at], found)
            if isinstance(found, Versioned) and _is_left_over(found.value, saves[at].state):
                left_over[at] = msgspec.structs.replace(puts[at], version=found.version)
        for at, outcome in zip(left_over, self._table.put_many(list(left_over.values())), strict=True):
            outcomes[at] = outcome
        return outcomes

    def read_states(self, preferences: SubscriptionRecord) -> dict[int, Taken]:
        """The states of a subscription, by partition. Raises CorruptRecord."""
        states: dict[int, Taken] = {}
        with self._cursor(preferences.queue, preferences.name) as cursor:
            while cursor.has_more_entries():
                for item in cursor.read_entries(_ENTRIES):
                    state = _CODEC.decode(item.value, item.key)
                    number = item.key.rpartition(SEPARATOR)[2]
                    if state.is_of(preferences) and number.isdecimal():
                        states[int(number)] = Versioned(state, item.version)
        return states

    def read_states_of_queue(self, queue: str) -> dict[tuple[str, int], SubscriptionState]:
        """The states of all subscriptions of a queue, by name and partition; without those that cannot be read.

        States of earlier subscriptions of a name may be among them (see `SubscriptionState.is_of`).
        """
        states: dict[tuple[str, int], SubscriptionState] = {}
        prefix = check_name("queue", queue)
        with self._table.open_cursor(prefix + SEPARATOR, True, prefix + AFTER, False) as cursor:
            while cursor.has_more_entries():
                for item in cursor.read_entries(_ENTRIES):
                    _, name, number = item.key.split(SEPARATOR)
                    with contextlib.suppress(CorruptRecord):
                        states[name, int(number)] = _CODEC.decode(item.value, item.key)
        return states

    def delete_states(self, queue: str, name: str, of: SubscriptionRecord | None) -> None:
        """Delete the states of that subscription and of earlier ones of the name; all of them when it is not known.

        Those of a later one stay, which somebody may have made meanwhile.
        """
        with self._cursor(queue, name) as cursor:
            while cursor.has_more_entries():
                removes = [_removal(item, of) for item in cursor.read_entries(_ENTRIES)]
                for outcome in self._table.remove_many([one for one in removes if one is not None]):
                    if isinstance(outcome, HootError) and not isinstance(outcome, NoKey | BadVersion):
                        raise outcome

    def delete_states_of_queue(self, queue: str) -> None:
        """Delete the states of all subscriptions of a queue that ends, damaged ones and those that nobody has."""
        remove_all(self._table, check_name("queue", queue))

    def _alter(self, changes: Sequence[TakeState | MoveState]) -> list[Taken | HootError]:
        outcomes: list[Taken | HootError] = [BadVersion("a state is being changed by others; try again")] * len(changes)
        pending = list(enumerate(changes))
        for _ in range(ATTEMPTS):
            if not pending:
                break
            pending = self._try(pending, outcomes)
        return outcomes

    def _try(
        self, pending: Sequence[tuple[int, TakeState | MoveState]], outcomes: list[Taken | HootError]
    ) -> list[tuple[int, TakeState | MoveState]]:  # fmt: skip
        """Try once; gives those that lost against others."""
        keys = [state_key(one.preferences.queue, one.preferences.name, one.partition) for _, one in pending]
        trying: list[tuple[int, TakeState | MoveState, SubscriptionState, Put]] = []
        read = self._read(keys)
        late = self._late(pending, read)
        for (at, change), key, found in zip(pending, keys, read, strict=True):
            state = change.next(found)
            if at in late and not isinstance(state, HootError):
                state = _deleted(change.preferences.queue, change.preferences.name)
            if isinstance(state, HootError):
                outcomes[at] = state
                continue
            version = found.version if isinstance(found, Versioned) else Version.NEW
            trying.append((at, change, state, Put(key, _CODEC.encode(state), version, whole=True)))
        lost = []
        written = self._table.put_many([put for _, _, _, put in trying])
        for (at, change, state, _), outcome in zip(trying, written, strict=True):
            if isinstance(outcome, BadVersion | KeyExists | NoKey):
                lost.append((at, change))
            else:
                outcomes[at] = outcome if isinstance(outcome, HootError) else Versioned(state, outcome)
        return lost

    def _late(
        self, pending: Sequence[tuple[int, TakeState | MoveState]], read: Sequence[Taken | CorruptRecord | None]
    ) -> set[int]:  # fmt: skip
        """Those that would take the state of a later subscription over for one that was deleted."""
        doubtful = [
            (at, one.preferences)
            for (at, one), found in zip(pending, read, strict=True)
            if isinstance(one, TakeState) and isinstance(found, Versioned) and not found.value.is_of(one.preferences)
        ]
        there = self._are_there([preferences for _, preferences in doubtful]) if doubtful else []
        return {at for (at, _), is_there in zip(doubtful, there, strict=True) if not is_there}

    @abstractmethod
    def _are_there(self, subscriptions: Sequence[SubscriptionRecord]) -> list[bool]:
        """Which of them were neither deleted nor replaced by another one of the name."""

    def _read(self, keys: Sequence[str]) -> list[Taken | CorruptRecord | None]:
        found = zip(keys, self._table.get_many(keys), strict=True)
        return [_CODEC.decode_found(one, key) for key, one in found]

    def _cursor(self, queue: str, name: str) -> MetastoreCursor:
        prefix = subscription_key(queue, name)
        return self._table.open_cursor(prefix + SEPARATOR, True, prefix + AFTER, False)


def _why_not_saved(save: SaveState, found: Taken | CorruptRecord | None) -> Version | HootError:
    """What became of a save under a version that is no longer the state's."""
    if isinstance(found, CorruptRecord):
        return found
    ours = save.state
    if found is None or (found.value.generation, found.value.created_ms) != (ours.generation, ours.created_ms):
        return _deleted(save.queue, save.name)
    if found.value == ours:
        return found.version  # an earlier try was done after all: no other owner writes this epoch
    if found.value.epoch > ours.epoch:
        return fenced(save.queue, save.partition)
    return BadVersion(
        f"the state of {save.name!r} in partition {save.partition} of {save.queue!r} was changed by another"
    )


def _is_left_over(found: SubscriptionState, ours: SubscriptionState) -> bool:
    """Whether an earlier subscription of this name was saved over ours: its owner held, by chance, the same version.

    Versions count from 0 again for each subscription, and a host that was away for long may hold one of before.
    """
    return found.created_ms < ours.created_ms and found.epoch <= ours.epoch


def _removal(item: MetastoreTableItem, of: SubscriptionRecord | None) -> Remove | None:
    """How to remove a state of that subscription or an earlier one; None for that of a later one."""
    try:
        state = _CODEC.decode(item.value, item.key)
    except CorruptRecord:
        return Remove(item.key, Version.ANY)
    if of is None or state.is_of(of) or state.created_ms < of.created_ms:
        return Remove(item.key, item.version)
    return None


def _deleted(queue: str, name: str) -> UnknownSubscription:
    return UnknownSubscription(f"subscription {name!r} of queue {queue!r} was deleted")


def _taken(outcome: Taken | HootError) -> Taken:
    if isinstance(outcome, HootError):
        raise outcome
    return outcome
