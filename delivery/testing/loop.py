"""A trio loop that stands still unless somebody lets it go on, on a clock that only moves when it is told to.

It has a thread of its own, so that a test, and what it tests, may run loops, too. Only one of the two threads runs at a
time: whoever calls `turn` waits until no task can go on any more.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import trio

from delivery import hop

T = TypeVar("T")

THREAD_SECONDS: Final = 10.0
"""How long, of real time, an async listener may take with threads of its own."""
_LOOK_SECONDS: Final = 0.001


class Outcome(Generic[T]):
    """What a call in the loop came to."""

    def __init__(self) -> None:
        self.done = False
        self.scope = trio.CancelScope()
        """Of a task; cancelled, it has no outcome."""
        self._value: T | None = None
        self._error: BaseException | None = None

    def get(self) -> T:
        """The result, or what was raised."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value] # None is a result only where T has it

    def of(self, work: Callable[[], T]) -> None:
        """Make the call."""
        try:
            self._value = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the call came from
            self._error = error
        self.done = True

    async def of_async(self, work: Callable[[], Awaitable[T]]) -> None:
        """Make the call, in a task."""
        with self.scope:
            try:
                self._value = await work()
            except trio.Cancelled:
                raise
            except BaseException as error:  # noqa: BLE001 - as above
                self._error = error
            self.done = True


class StillLoop(trio.abc.Clock, trio.abc.Instrument):
    """The loop's clock, what watches over its steps, and the way in from other threads. `close` ends it."""

    def __init__(self) -> None:
        self.now = 0.0
        """Virtual seconds."""
        self.next_at = 0.0
        """When the first of those who wait for a time goes on."""
        self._idle_looks = 0
        self._go, self._still = threading.Semaphore(0), threading.Semaphore(0)
        self._driving = threading.Lock()
        self._token: trio.lowlevel.TrioToken | None = None
        self._limiter: trio.CapacityLimiter | None = None
        self._nursery: trio.Nursery | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="hoot-testing", daemon=True)
        self._thread.start()
        self._still.acquire()

    # -- for other threads

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the loop's."""
        return threading.current_thread() is self._thread

    @property
    def has_threads(self) -> bool:
        """Whether tasks wait for threads of theirs."""
        return self._limiter is not None and self._limiter.borrowed_tokens > 0

    def turn(self) -> None:
        """Let all tasks go on as far as they can without time passing.

        Raises RuntimeError in the loop itself, as trio does: whoever waits there waits for themselves.
        """
        if self.is_here:
            raise RuntimeError("this call blocks: in an async listener make it by trio.to_thread.run_sync")
        with self._driving:
            if self._ended:
                return
            self._go.release()
            try:
                self._still.acquire()
            except BaseException:  # Ctrl-C: nobody else may drive before it stands still
                self._still.acquire()
                raise

    def call(self, work: Callable[[], T]) -> T:
        """`work()` in the loop, between two steps of tasks."""
        if self.is_here:
            return work()
        outcome = Outcome[T]()
        self.post(lambda: outcome.of(work))
        self.turn()
        return outcome.get()

    def post(self, work: Callable[[], object]) -> None:
        """Have `work()` called in the loop, with the next turn; not at all when it has ended."""
        assert self._token is not None
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(work)

    def start(self, work: Callable[[], Awaitable[T]]) -> Outcome[T]:
        """Begin a task; its outcome comes with one of the next turns."""
        outcome = Outcome[T]()
        nursery = self._nursery
        assert nursery is not None
        self.post(lambda: nursery.start_soon(outcome.of_async, work))
        return outcome

    def wait_for_threads(self) -> None:
        """Give threads that tasks wait for a moment of real time."""
        threading.Event().wait(_LOOK_SECONDS)

    def close(self) -> None:
        """Cancel all tasks and end the thread. Closing twice is fine."""
        nursery = self._nursery
        assert nursery is not None
        self.post(nursery.cancel_scope.cancel)
        self.turn()
        while self._thread.is_alive():
            if self.next_at < math.inf:  # something is shielded, and waits for a time
                self.now = max(self.now, self.next_at)
            self.wait_for_threads()
            self.turn()

    # -- trio's clock and instrument

    def start_clock(self) -> None:
        """See Clock."""

    def current_time(self) -> float:
        """See Clock."""
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """No task can go on now. Once it is sure that nothing came from outside, stand still."""
        self._idle_looks += 1
        if self._idle_looks > 1:
            self.next_at = deadline
            self._still.release()
            self._go.acquire()
            self._idle_looks = 0
        return 0.0

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        """Something goes on."""
        self._idle_looks = 0

    # -- the thread

    def _work(self) -> None:
        async def main() -> None:
            hop.AT_ONCE.set(True)
            self._token = trio.lowlevel.current_trio_token()
            self._limiter = trio.to_thread.current_default_thread_limiter()
            async with trio.open_nursery() as self._nursery:
                await trio.sleep_forever()

        try:
            trio.run(main, clock=self, instruments=[self])
        finally:
            self._ended = True
            self._still.release()


def at_once(work: Awaitable[T]) -> T:
    """The result of a coroutine that waits for nothing."""
    step: Any = work
    try:
        step.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    step.close()
    raise AssertionError("it waits for something")
