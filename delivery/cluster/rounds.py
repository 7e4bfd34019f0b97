"""Many ask the same of ZooKeeper at the same moment: all who wait are answered by one call in a thread.

While a round is on its way, those who ask gather for the next one: the busier it is, the more go together, and whoever
asks alone does not wait. One of those who wait leads each round, so that this needs no task of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar

import trio

from delivery import hop
from delivery.errors import HootError, again

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 1000
"""In a round: so many take some tens of milliseconds."""


class _Wait(Generic[T, R]):
    """One who asks."""

    __slots__ = ("answer", "item", "task")

    def __init__(self, item: T) -> None:
        self.item, self.task = item, trio.lowlevel.current_task()
        self.answer: R | BaseException | None = None
        """None before the round, and where that is the answer."""


class Rounds(Generic[T, R]):
    """For the trio thread."""

    def __init__(self, work: Callable[[Sequence[T]], Sequence[R | HootError]]) -> None:
        """`work` answers many, each by itself; it blocks. What it raises is the answer to all of them."""
        self._work = work
        self._waiting: dict[_Wait[T, R], None] = {}
        self._led = False

    async def ask(self, item: T) -> R:
        """The answer, raised where it is an error. Nobody hears of one who is cancelled before the round begins.

        From then on the answer is waited for, as that of a thread is: it may have changed something.
        """
        wait = _Wait[T, R](item)
        self._waiting[wait] = None
        if self._led:
            await trio.lowlevel.wait_task_rescheduled(lambda _: self._leave(wait))
        if wait in self._waiting:
            await self._lead(wait)
        if isinstance(wait.answer, HootError):
            raise again(wait.answer)
        if isinstance(wait.answer, BaseException):
            raise wait.answer
        return wait.answer  # type: ignore[return-value] # None is an answer only where R has it

    def _leave(self, wait: _Wait[T, R]) -> trio.lowlevel.Abort:
        if wait not in self._waiting:
            return trio.lowlevel.Abort.FAILED
        del self._waiting[wait]
        return trio.lowlevel.Abort.SUCCEEDED

    async def _lead(self, wait: _Wait[T, R]) -> None:
        """A round of this and what waits behind it; then the next of those who wait leads."""
        self._led = True
        try:
            await trio.lowlevel.checkpoint()  # whoever asks in the same moment comes along
            group = list(islice(self._waiting, AT_ONCE))
            for one in group:
                del self._waiting[one]
            await self._answer(group)
            for one in group:
                if one is not wait:
                    trio.lowlevel.reschedule(one.task)
        finally:
            self._waiting.pop(wait, None)
            self._led = bool(self._waiting)
            if self._led:
                trio.lowlevel.reschedule(next(iter(self._waiting)).task)

    async def _answer(self, group: Sequence[_Wait[T, R]]) -> None:
        answers: Sequence[R | BaseException]
        try:
            with trio.CancelScope(shield=True):
                answers = await hop.run_sync(self._work, [one.item for one in group])
        except BaseException as error:  # noqa: BLE001 - all of them raise it
            answers = [error] * len(group)
        for one, answer in zip(group, answers, strict=True):
            one.answer = answer
