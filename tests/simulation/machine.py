"""A machine: one simulated process, with a boundary at which it can be paused or cut down.

Everything that goes in or out passes `act`. While the machine is paused it is kept there, in order, and happens when
the machine goes on: the program inside does not know that it was away, and its first act may be one that it had decided
on long before. After a crash nothing passes any more; what was on its way outside (a write to a disk, a request to
ZooKeeper) may still arrive there.

Blocking code, which the host runs in threads, runs here in *strands*: greenlets that stand still at each call to the
outside until the answer has come back, while others go on. So a pause or a crash can hit between any two such calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar

import outcome
import trio
from greenlet import getcurrent, greenlet

from tests.simulation.kernel import Call, Kernel

T = TypeVar("T")
Resume = Callable[[Any], None]

EPOCH_MS = 1_700_000_000_000
HOP_SECONDS = 0.0005

here: ContextVar[Machine] = ContextVar("here")
"""The machine whose code is running."""


class Crashed(BaseException):
    """Raised inside a machine that is no more, to take its tasks and strands down without another effect."""


class Machine:
    """One process. `scope` is cancelled when it crashes."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name = kernel, name
        self.alive = True
        self.paused = False
        self.scope = trio.CancelScope()
        self.clock_off_ms = 0
        """How wrong its wall clock is."""
        self.on_crash: list[Call] = []
        self.on_pause: list[Call] = []
        self.on_resume: list[Call] = []
        self._held: deque[Call] = deque()
        self._strands: dict[_Strand, None] = {}

    def __repr__(self) -> str:
        return self.name

    def act(self, call: Call) -> None:
        """Make a call across the boundary: now, or when the pause is over, or never."""
        if not self.alive:
            return
        if self.paused:
            self._held.append(call)
            return
        if here.get(None) is self:
            call()
            return
        token = here.set(self)
        try:
            call()
        finally:
            here.reset(token)

    def act_later(self, seconds: float, call: Call) -> None:
        """`act` after some time."""
        self.kernel.later(seconds, partial(self.act, call))

    def pause(self) -> None:
        """Stand still."""
        self.paused = True
        for tell in self.on_pause:
            tell()

    def resume(self) -> None:
        """Go on, with everything that came in the meantime."""
        self.paused = False
        for tell in self.on_resume:
            tell()
        while self._held and self.alive and not self.paused:
            self.act(self._held.popleft())

    def crash(self) -> None:
        """Be no more."""
        if not self.alive:
            return
        self.alive = False
        self._held.clear()
        self.scope.cancel()
        for strand in list(self._strands):
            strand.kill()
        for tell in self.on_crash:
            tell()

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by this machine's clock."""
        return EPOCH_MS + int(self.kernel.now * 1000) + self.clock_off_ms

    def start_strand(self, work: Callable[[], T], done: Callable[[outcome.Outcome[T]], None]) -> None:
        """Run blocking `work` from the next moment on; `done` gets its result or error."""
        if not self.alive:
            done(outcome.Error(Crashed()))
            return
        strand = _Strand(self, work, done)
        self._strands[strand] = None
        self.act_later(self.kernel.between(0, HOP_SECONDS), partial(strand.go_on, None))

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """What trio.to_thread.run_sync does: not to be cancelled before its end."""
        task = trio.lowlevel.current_task()
        given: list[outcome.Outcome[T]] = []
        waiting = False

        def done(result: outcome.Outcome[T]) -> None:
            given.append(result)
            if waiting:
                trio.lowlevel.reschedule(task)

        self.start_strand(work, done)
        if not given:
            waiting = True
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        return given[0].unwrap()

    def forget(self, strand: _Strand) -> None:
        """A strand has come to its end."""
        self._strands.pop(strand, None)


class _Strand:
    """Blocking code that stands still at the boundary."""

    def __init__(self, machine: Machine, work: Callable[[], T], done: Callable[[outcome.Outcome[T]], None]) -> None:
        self.machine = machine
        self._work, self._done = work, done
        self._context = copy_context()
        self._greenlet: Any = None
        self._ended = False

    def go_on(self, value: object) -> None:
        """Take an answer, and run until the next question."""
        if self._ended:
            return
        if self._greenlet is None:
            self._greenlet = _idle.pop() if _idle else greenlet(_run_strands)
            self._greenlet.gr_context = self._context
            self._greenlet.strand = value = self
        self._greenlet.switch(value)

    def answer(self, value: object) -> None:
        """Go on with an answer from outside, when the machine lets it in."""
        self.machine.act(partial(self.go_on, value))

    def kill(self) -> None:
        """The machine is no more."""
        if not self._ended:
            if self._greenlet is not None:
                self._greenlet.throw(Crashed())
            else:
                self._end(outcome.Error(Crashed()))

    def run(self) -> None:
        """From beginning to end, in a greenlet."""
        self._end(outcome.capture(self._work))

    def _end(self, result: outcome.Outcome[Any]) -> None:
        self._ended = True
        self.machine.forget(self)
        self._done(result)


_idle: list[Any] = []
"""Greenlets whose strand has ended. To make one takes longer than most strands: memory is mapped for its stack."""


def _run_strands(strand: _Strand) -> None:
    """What a greenlet does: one strand after the other."""
    me = getcurrent()
    while True:
        strand.run()
        _idle.append(me)
        strand = me.parent.switch()


def stand_still(ask: Callable[[Resume], None]) -> Any:
    """Called in a strand: `ask` gets a function that brings the strand its answer, later and once; gives the answer.

    The answer is kept while the machine is paused, and lost when it crashes.
    """
    strand: _Strand = getcurrent().strand
    machine = strand.machine
    if not machine.alive:
        raise Crashed
    machine.act(partial(ask, strand.answer))
    return getcurrent().parent.switch()


def spend(seconds: float) -> None:
    """Called in a strand: let virtual time pass."""
    kernel = here.get().kernel
    stand_still(lambda resume: kernel.later(seconds, partial(resume, None)))
