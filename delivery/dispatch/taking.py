"""Taking states over: many workers begin at the same moment, and all that wait for their states go in one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from delivery.cluster.rounds import Rounds
from delivery.errors import Fenced, HootError
from delivery.metastore.managers.changes import Taken, TakeState


class States(Protocol):
    """Where states are kept (metastore.catalog.Catalog); blocking."""

    def take_states(self, takes: Sequence[TakeState]) -> list[Taken | HootError]:
        """Take many over, each by itself: the state and its version, or why not."""


class StateTaker:
    """Takes states over for the workers of a host. While some are on their way, the next ones gather."""

    def __init__(self, store: States, on_fenced: Callable[[str, int], None]) -> None:
        """`on_fenced(queue, partition)` is told when a newer owner has a state."""
        self._rounds = Rounds[TakeState, Taken](store.take_states)
        self._on_fenced = on_fenced

    async def take(self, take: TakeState) -> Taken:
        """See SubscriptionStates.take_state."""
        try:
            return await self._rounds.ask(take)
        except Fenced:
            self._on_fenced(take.preferences.queue, take.partition)
            raise
