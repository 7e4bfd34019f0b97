"""The threads of a subscriber, on which everything of the application's is called.

Each subscription is a strand: what comes for it is done one after another, in order of arrival, and what another one is
at costs it nothing. One thread does that for all of them as long as their callbacks are quick. When a strand waits and
no job of any has ended for HELD_UP_SECONDS, there is one thread more, up to as many as subscriptions have something to
do; and those that nothing comes to end after a minute. So a Subscriber with hundreds of subscriptions has one thread,
and one to which nothing has come has none, while a thread for each would be hundreds as soon as each has got a message,
which all want the interpreter at the same time. What a hanging callback costs the others is HELD_UP_SECONDS, once.

What a job raises is a defect, for jobs answer for what callbacks raise: the threads go on, and `run` raises it.

Async listeners hop from here into the loop and back. A thread that waits for a queue takes a push over in some 20 µs, a
fourth of what `trio.to_thread` needs. Subscriptions with `concurrency` have threads and strands of their own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

import msgspec
import trio

from delivery import logs
from subscriber.listeners import Abandoned, AsyncCall, Concurrency
from subscriber.staff import Staff
from subscriber.strands import Job, Strands

log = logs.logger(__name__)

HELD_UP_SECONDS: Final = 0.02
"""Less, and callbacks that take a little time would each have a thread, where one after another is as good."""


class _Errand(msgspec.Struct):
    """An async call on its way through the loop; the thread that it comes from waits for `ended`."""

    call: AsyncCall
    argument: Any
    ended: SimpleQueue[BaseException | None]
    task: trio.lowlevel.Task | None = None
    """In which it runs, while it does."""

    async def run(self) -> None:
        """Make the call, and say how it ended even when it is cancelled."""
        outcome: BaseException | None = Abandoned()
        self.task = trio.lowlevel.current_task()
        try:
            await self.call(self.argument)
            outcome = None
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised where the call came from
            outcome = error
        finally:
            self.task = None
            self.ended.put(outcome)


class Dispatcher:
    """Owns the threads while `run` runs."""

    def __init__(self) -> None:
        self.clock: Callable[[], float] = time.monotonic
        """By which callbacks and acknowledgements are late, in seconds. May be read on any thread."""
        self._send, self._receive = trio.open_memory_channel[_Errand](1)
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._tasks: set[trio.lowlevel.Task] = set()
        self._is_away = False
        """Whether the task of `run` is with an async call."""
        crowded = partial(self.post, self._relieve_soon)
        self._shared = Strands(0, self._look_soon, on_error=self._failed, on_crowded=crowded)
        self._strands: list[Strands] = [self._shared]
        self._awaited: dict[int, _Errand] = {}
        """By the thread that waits for it."""
        self._idle = trio.Event()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is one of those that call listeners."""
        return any(one.is_here for one in self._strands)

    @property
    def is_own_task(self) -> bool:
        """Whether the calling task is one of those in which async listeners run."""
        return trio.lowlevel.current_task() in self._tasks

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make async calls for the threads until cancelled; those that come later are Abandoned.

        Raises what a job raised.
        """
        self._token = trio.lowlevel.current_trio_token()
        self._tasks.add(trio.lowlevel.current_task())
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    task_status.started()
                    async for errand in self._receive:
                        await errand.run()
                        self._is_away = False
                finally:
                    self._nursery = None  # before it is left: it takes no task when it is
        finally:
            self.stop()
            self._refuse_errands()

    def strands(self, concurrency: Concurrency) -> Strands:
        """Threads for one subscription. They end by `stop`, theirs or that of all."""
        threads, staff = (1, Staff()) if concurrency == "auto" else (concurrency, None)
        made = Strands(threads, self._look_soon, staff, on_error=self._failed)
        others = [one for one in self._strands if one is not self._shared and not one.is_idle]
        self._strands = [self._shared, *others, made]
        return made

    def submit(self, strand: Hashable, job: Job) -> None:
        """Have `job` called after all of its strand that was submitted before. Any thread may submit."""
        self._shared.submit(strand, job)

    def stop(self) -> None:
        """End the threads after all that was submitted before. They are not waited for: see `idle`."""
        for one in self._strands:
            one.stop()

    @property
    def is_idle(self) -> bool:
        """Whether the threads have ended, or were never started."""
        return all(one.is_idle for one in self._strands)

    async def idle(self) -> None:
        """Return when the threads have ended, some time after `stop`; at once when they were never started."""
        while not self.is_idle:
            await self._idle.wait()
            self._idle = trio.Event()

    def hop(self, call: AsyncCall, argument: object) -> None:
        """From a job: `await call(argument)` in the loop. Raises what it raises, or Abandoned when the loop ends.

        In the task of `run`, which costs little; in one of its own while that is with another call.
        """
        thread = threading.get_ident()
        self._awaited[thread] = errand = _Errand(call, argument, SimpleQueue())
        if not self._post(partial(self._accept, errand)):
            raise Abandoned
        outcome = errand.ended.get()
        del self._awaited[thread]
        if outcome is not None:
            raise outcome

    def task_of(self, thread: int) -> trio.lowlevel.Task | None:
        """In which the async call runs that a thread waits for; None when it waits for none. From any thread."""
        errand = self._awaited.get(thread)
        return None if errand is None else errand.task

    def post(self, call: Callable[[], object]) -> None:
        """From a job: have `call` called in the loop, soon; not at all when the loop has ended."""
        self._post(call)

    def _post(self, call: Callable[[], object]) -> bool:
        assert self._token is not None
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            return False
        return True

    def _accept(self, errand: _Errand) -> None:
        if self._nursery is None:
            errand.ended.put(Abandoned())
        elif self._is_away:
            self._nursery.start_soon(self._run_beside, errand)
        else:
            self._is_away = True
            self._send.send_nowait(errand)

    async def _run_beside(self, errand: _Errand) -> None:
        task = trio.lowlevel.current_task()
        self._tasks.add(task)
        try:
            await errand.run()
        finally:
            self._tasks.discard(task)

    def _relieve_soon(self) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._relieve)

    async def _relieve(self) -> None:
        """Have as many threads as it takes, as long as a strand waits for one."""
        waiting = True
        while waiting:
            await trio.sleep(HELD_UP_SECONDS)
            waiting = self._shared.relieve()

    def _failed(self, error: BaseException) -> None:
        """A job raised: nobody knows what it has left undone."""
        log.error("a job of the subscriber's failed unexpectedly; it ends", exc_info=error)
        self.post(partial(self._raise_soon, error))

    def _raise_soon(self, error: BaseException) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(_raise, error)

    def _look_soon(self) -> None:
        self.post(self._look)

    def _look(self) -> None:
        self._idle.set()

    def _refuse_errands(self) -> None:
        with contextlib.suppress(trio.WouldBlock):
            while True:
                self._receive.receive_nowait().ended.put(Abandoned())
        self._receive.close()


async def _raise(error: BaseException) -> None:
    raise error
