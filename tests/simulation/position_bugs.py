"""Mistakes to plant in moving positions by hand: seeking, snapshots, replays and their promotion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import msgspec

from delivery.client.positions import Move, Positions
from delivery.dispatch.pacing import ReplaySource
from delivery.ids import ID_MAX
from delivery.metastore.managers.changes import MoveState
from delivery.metastore.managers.snapshots import SavedPosition
from delivery.metastore.managers.states import SubscriptionStates
from delivery.metastore.tables.versions import Version
from subscriber.inbox import PartitionInbox

Bug = Any
"""A context in which the mistake is made."""


def not_heard_again() -> Bug:
    """A subscriber skips what it has handled, although somebody moved the position to have it come again."""
    begin = PartitionInbox.begin

    def deaf(inbox: PartitionInbox, turn: Any, after: int, moves: int = 0, parked: Any = (), **more: Any) -> Any:
        try:
            return begin(inbox, turn, after, 0, parked, **more)
        finally:
            inbox._moves = moves

    return mock.patch.object(PartitionInbox, "begin", deaf)


def move_not_counted() -> Bug:
    """A position is moved like any save: nobody can tell it from a mistake."""
    following = MoveState.next

    def uncounted(move: MoveState, found: Any) -> Any:
        state: Any = following(move, found)
        return msgspec.structs.replace(state, moves=0 if found is None else found.value.moves)

    return mock.patch.object(MoveState, "next", uncounted)


def parked_left_behind() -> Bug:
    """Going back to a snapshot, or promoting a replay, forgets what was parked there."""
    put = Positions.put

    def forgetful(positions: Positions, record: Any, places: Mapping[int, SavedPosition], **how: Any) -> list[Move]:
        return put(positions, record, {one: SavedPosition(place.position) for one, place in places.items()}, **how)

    return mock.patch.object(Positions, "put", forgetful)


def replay_without_end() -> Bug:
    """A replay goes on to what is published after it was made."""
    begin = ReplaySource.__init__

    def endless(source: ReplaySource, inner: Any, until: int, pace: Any, *more: Any) -> None:
        begin(source, inner, ID_MAX, pace, *more)

    return mock.patch.object(ReplaySource, "__init__", endless)


def promoted_without_a_move() -> Bug:
    """A replay is deleted, and the real subscription goes on where it was."""
    return mock.patch.object(Positions, "put", return_value=[])


def saved_over_a_move() -> Bug:
    """An owner that has not heard of a move saves its position over it."""
    save = SubscriptionStates.save_states

    def unfenced(states: SubscriptionStates, saves: Any) -> Any:
        return save(states, [msgspec.structs.replace(one, version=Version.ANY) for one in saves])

    return mock.patch.object(SubscriptionStates, "save_states", unfenced)


FOUND_AS: Mapping[str, tuple[Callable[[], Bug], str]] = {
    "not heard again": (not_heard_again, "I5 I8 I11"),
    "move not counted": (move_not_counted, "I4 I15"),
    "parked left behind": (parked_left_behind, "I15"),
    "replay without end": (replay_without_end, "I5 I16"),
    "promoted without a move": (promoted_without_a_move, "I15"),
    "saved over a move": (saved_over_a_move, "I15"),
}
"""What plants each, and the invariants as one of which it is found."""
