"""Taking states over: many workers begin at the same moment, and all that wait for their states go in one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import trio

from delivery.errors import Fenced, HootError, again
from delivery.metastore.managers.states import Taken, TakeState

TAKEN_AT_ONCE: Final = 1000


class States(Protocol):
    """Where states are kept (metastore.catalog.Catalog); blocking."""

    def take_states(self, takes: Sequence[TakeState]) -> list[Taken | HootError]:
        """Take many over, each by itself: the state and its version, or why not."""


class _Wait:
    """One who waits for a state."""

    __slots__ = ("outcome", "take")

    def __init__(self, take: TakeState) -> None:
        self.take = take
        self.outcome: Taken | HootError | None = None


class StateTaker:
    """Takes states over for the workers of a host. While some are on their way, the next ones gather."""

    def __init__(self, store: States, on_fenced: Callable[[str, int], None]) -> None:
        """`on_fenced(queue, partition)` is told when a newer owner has a state."""
        self._store, self._on_fenced = store, on_fenced
        self._waiting: list[_Wait] = []
        self._lock = trio.Lock()

    async def take(self, take: TakeState) -> Taken:
        """See SubscriptionStates.take_state."""
        wait = _Wait(take)
        self._waiting.append(wait)
        try:
            async with self._lock:
                while wait.outcome is None:
                    await self._take_waiting()
        except BaseException:
            if wait in self._waiting:
                self._waiting.remove(wait)
            raise
        if isinstance(wait.outcome, Fenced):
            self._on_fenced(take.preferences.queue, take.partition)
        if isinstance(wait.outcome, HootError):
            raise again(wait.outcome)
        return wait.outcome

    async def _take_waiting(self) -> None:
        await trio.lowlevel.checkpoint()  # whoever begins in the same moment comes along
        group, self._waiting = self._waiting[:TAKEN_AT_ONCE], self._waiting[TAKEN_AT_ONCE:]
        outcomes: Sequence[Taken | HootError]
        try:
            outcomes = await trio.to_thread.run_sync(self._store.take_states, [wait.take for wait in group])
        except HootError as error:
            outcomes = [error] * len(group)
        except BaseException:
            self._waiting = group + self._waiting
            raise
        for wait, outcome in zip(group, outcomes, strict=True):
            wait.outcome = outcome
