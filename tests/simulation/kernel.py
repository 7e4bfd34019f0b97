"""The world's clock and its chance: virtual time that jumps from event to event, and one source of random numbers.

Events are plain calls at a time. They run in trio's loop, between its tasks, whenever no task can go on: whatever is
simulated outside of the programs (networks, disks, ZooKeeper) needs no task of its own, which is most of the speed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

import trio
from trio._core import _run

from tests.simulation.history import History
from tests.simulation.loop import shut_off

Call = Callable[[], object]


class Kernel:
    """Of one run. Two runs with the same seed draw the same numbers in the same order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._draw = self.random.random
        self.now = 0.0
        """Virtual seconds since the start."""
        self.history = History()
        self.failure: BaseException | None = None
        """What an event raised: a mistake of the simulation, or an assertion of the code under test."""
        self._events: list[tuple[float, int, Call]] = []
        self._count = 0
        self._root: trio.CancelScope | None = None

    def later(self, seconds: float, call: Call) -> None:
        """Make `call` in `seconds` of virtual time. What falls together happens in the order of these calls."""
        self._count += 1
        heappush(self._events, (self.now + seconds, self._count, call))

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self._draw() < probability

    def between(self, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        return low + (high - low) * self._draw()

    def note(self, kind: str, who: str, *facts: object) -> None:
        """Write it into the history."""
        self.history.add(self.now, kind, who, facts)

    def fail(self, error: BaseException) -> None:
        """End the run with this error."""
        self.failure = self.failure or error
        if self._root is not None:
            self._root.cancel()

    def next_event(self) -> float:
        """When the next event is due."""
        return self._events[0][0] if self._events else inf

    def run_due(self) -> None:
        """Run the events of this moment."""
        events = self._events
        while events and events[0][0] <= self.now:
            call = heappop(events)[2]
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - it must not get into trio's loop
                self.fail(error)

    def run(self, story: Callable[[], Any]) -> None:
        """Run a program to its end, in virtual time. Raises what failed."""

        async def root() -> None:
            with trio.CancelScope() as self._root:
                await story()

        _run._r.seed(self.random.random())
        trio.run(root, clock=_Clock(self))
        if self.failure is not None:
            raise self.failure


class _Clock(trio.abc.Clock):
    """A clock that stands still while any task can go on, then jumps to what is next: a timer or an event."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def start_clock(self) -> None:
        """The loop is there, and has not begun."""
        shut_off(_run.GLOBAL_RUN_CONTEXT.runner)

    def current_time(self) -> float:
        return self._kernel.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Asked when no task can go on: go to the next moment at which one can, and do not sleep."""
        kernel, runner = self._kernel, _run.GLOBAL_RUN_CONTEXT.runner
        while not runner.runq:
            deadline = runner.deadlines.next_deadline()
            at = min(kernel.next_event(), deadline)
            if at == inf:
                kernel.fail(AssertionError("nothing will ever happen again"))
                break
            kernel.now = max(kernel.now, at)
            if deadline <= kernel.now:
                break
            kernel.run_due()
        return 0.0
