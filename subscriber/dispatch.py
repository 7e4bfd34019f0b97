"""The dispatch thread of a subscriber, on which everything of the application's is called, one after another.

Jobs come from the trio loop in order of arrival; async listeners hop from here into the loop and back. A long-lived
thread fed by a SimpleQueue takes a push over in some 20 µs, a fourth of what `trio.to_thread` needs. Subscriptions that
are worked off side by side have strands of their own.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import msgspec
import trio

from subscriber.listeners import Abandoned, AsyncCall, Concurrency
from subscriber.staff import Staff
from subscriber.strands import Strands

log = logging.getLogger(__name__)

Job = Callable[[], None]


class _Errand(msgspec.Struct):
    """An async call on its way through the loop; the thread that it comes from waits for `ended`."""

    call: AsyncCall
    argument: Any
    ended: SimpleQueue[BaseException | None]
    task: trio.lowlevel.Task | None = None
    """In which it runs."""

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
            self.ended.put(outcome)


class Dispatcher:
    """Owns the thread while `run` runs. Jobs must not raise."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._send, self._receive = trio.open_memory_channel[_Errand](math.inf)
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._work, name="subscriber-dispatch", daemon=True)
        self._nursery: trio.Nursery | None = None
        self._tasks: set[trio.lowlevel.Task] = set()
        self._strands: list[Strands] = []
        self._awaited: dict[int, _Errand] = {}
        """By the thread that waits for it."""
        self._over = False
        self._idle = trio.Event()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is one of those that call listeners."""
        return threading.current_thread() is self._thread or any(one.is_here for one in self._strands)

    @property
    def is_own_task(self) -> bool:
        """Whether the calling task is one of those in which async listeners run."""
        return trio.lowlevel.current_task() in self._tasks

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make async calls for the threads until cancelled; those that come later are Abandoned."""
        self._token = trio.lowlevel.current_trio_token()
        self._tasks.add(trio.lowlevel.current_task())
        self._thread.start()
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                async for errand in self._receive:
                    await errand.run()
        finally:
            self._nursery = None
            self.stop()
            self._refuse_errands()

    def strands(self, concurrency: Concurrency) -> Strands:
        """Threads for one subscription. They end by `stop`, theirs or that of all."""
        look = partial(self.post, self._look)
        made = Strands(1, look, Staff()) if concurrency == "auto" else Strands(concurrency, look)
        self._strands = [*(one for one in self._strands if not one.is_idle), made]
        return made

    def submit(self, job: Job) -> None:
        """Have `job` called on the thread, after all that was submitted before. Any thread may submit."""
        self._jobs.put(job)

    def stop(self) -> None:
        """End the threads after all that was submitted before. They are not waited for: see `idle`."""
        self._jobs.put(None)
        for one in self._strands:
            one.stop()

    @property
    def is_idle(self) -> bool:
        """Whether the threads have ended, or were never started."""
        return (self._over or self._thread.ident is None) and all(one.is_idle for one in self._strands)

    async def idle(self) -> None:
        """Return when the threads have ended, some time after `stop`; at once when they were never started."""
        while not self.is_idle:
            await self._idle.wait()
            self._idle = trio.Event()

    def hop(self, call: AsyncCall, argument: object) -> None:
        """From a job: `await call(argument)` in the loop. Raises what it raises, or Abandoned when the loop ends.

        From the dispatch thread in the task of `run`, which costs little; from a strand in a task of its own.
        """
        thread = threading.get_ident()
        self._awaited[thread] = errand = _Errand(call, argument, SimpleQueue())
        accept = self._accept if threading.current_thread() is self._thread else self._accept_beside
        if not self._post(partial(accept, errand)):
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
        try:
            self._send.send_nowait(errand)
        except trio.BrokenResourceError:
            errand.ended.put(Abandoned())

    def _accept_beside(self, errand: _Errand) -> None:
        if self._nursery is None:
            errand.ended.put(Abandoned())
        else:
            self._nursery.start_soon(self._run_beside, errand)

    async def _run_beside(self, errand: _Errand) -> None:
        task = trio.lowlevel.current_task()
        self._tasks.add(task)
        try:
            await errand.run()
        finally:
            self._tasks.discard(task)

    def _look(self) -> None:
        self._idle.set()

    def _refuse_errands(self) -> None:
        with contextlib.suppress(trio.WouldBlock):
            while True:
                self._receive.receive_nowait().ended.put(Abandoned())
        self._receive.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self._over = True
        self._post(self._look)
