"""The outcome of something that was begun: waking a task with it costs a turn of the loop, a callback nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

from delivery.errors import HootError, again

T = TypeVar("T")
U = TypeVar("U")


class Promise(Generic[T]):
    """Is given its outcome once, a result or a HootError; who asked for it is told in the order of asking.

    For the trio thread only.
    """

    __slots__ = ("_asked", "outcome")

    def __init__(self) -> None:
        self.outcome: T | HootError | None = None
        """None until it is there."""
        self._asked: list[Callable[[T | HootError], object]] = []

    def give(self, outcome: T | HootError) -> None:
        """The end; once."""
        assert self.outcome is None, "an outcome is given once"
        self.outcome = outcome
        asked, self._asked = self._asked, []
        for tell in asked:
            tell(outcome)

    def then(self, tell: Callable[[T | HootError], object]) -> None:
        """Call `tell` with the outcome: now, or as soon as it is there. It must not raise."""
        if self.outcome is not None:
            tell(self.outcome)
        else:
            self._asked.append(tell)

    def map(self, change: Callable[[T], U]) -> Promise[U]:
        """The promise of `change(result)`; an error stays as it is."""
        changed: Promise[U] = Promise()  # `Promise[U]()` takes ten times as long
        self.then(lambda outcome: changed.give(outcome if isinstance(outcome, HootError) else change(outcome)))
        return changed

    async def wait(self) -> T:
        """The result, or the error raised. Cancelled: what was begun goes on."""
        if self.outcome is None:
            await self._told()
        assert self.outcome is not None
        if isinstance(self.outcome, HootError):
            raise again(self.outcome)
        return self.outcome

    async def _told(self) -> None:
        """An event would do the same, and cost three times as much."""
        here = [trio.lowlevel.current_task()]

        def leave(_: object) -> trio.lowlevel.Abort:
            here.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        self.then(lambda _: trio.lowlevel.reschedule(here.pop()) if here else None)
        await trio.lowlevel.wait_task_rescheduled(leave)
