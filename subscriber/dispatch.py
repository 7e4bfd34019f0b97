"""The dispatch thread of a subscriber, on which everything of the application's is called, one after another.

Jobs come from the trio loop in order of arrival; async listeners hop from here into the loop and back. A long-lived
thread fed by a SimpleQueue takes a push over in some 20 µs, a fourth of what `trio.to_thread` needs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import msgspec
import trio

from subscriber.listeners import Abandoned, AsyncCall

log = logging.getLogger(__name__)

Job = Callable[[], None]


class _Errand(msgspec.Struct):
    """An async call on its way through the loop; the dispatch thread waits for `ended`."""

    call: AsyncCall
    argument: Any
    ended: SimpleQueue[BaseException | None]

    async def run(self) -> None:
        """Make the call, and say how it ended even when it is cancelled."""
        outcome: BaseException | None = Abandoned()
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
        self._send, self._receive = trio.open_memory_channel[_Errand](1)
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._work, name="subscriber-dispatch", daemon=True)
        self.task: trio.lowlevel.Task | None = None
        """In which async calls run, while `run` does."""
        self._idle = trio.Event()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the dispatch thread."""
        return threading.current_thread() is self._thread

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make async calls for the thread until cancelled; those that come later are Abandoned."""
        self._token = trio.lowlevel.current_trio_token()
        self.task = trio.lowlevel.current_task()
        self._thread.start()
        task_status.started()
        try:
            async for errand in self._receive:
                await errand.run()
        finally:
            self.stop()
            self._refuse_errands()

    def submit(self, job: Job) -> None:
        """Have `job` called on the thread, after all that was submitted before. Any thread may submit."""
        self._jobs.put(job)

    def stop(self) -> None:
        """End the thread after all that was submitted before. It is not waited for: see `idle`."""
        self._jobs.put(None)

    @property
    def is_idle(self) -> bool:
        """Whether the thread has ended, or was never started."""
        return self._idle.is_set() or self._thread.ident is None

    async def idle(self) -> None:
        """Return when the thread has ended, some time after `stop`; at once when it was never started."""
        if not self.is_idle:
            await self._idle.wait()

    def hop(self, call: AsyncCall, argument: object) -> None:
        """From a job: `await call(argument)` in the loop. Raises what it raises, or Abandoned when the loop ends."""
        errand = _Errand(call, argument, SimpleQueue())
        if not self._post(lambda: self._accept(errand)):
            raise Abandoned
        outcome = errand.ended.get()
        if outcome is not None:
            raise outcome

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

    def _refuse_errands(self) -> None:
        with contextlib.suppress(trio.WouldBlock):
            while True:
                self._receive.receive_nowait().ended.put(Abandoned())
        self._receive.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self._post(self._idle.set)
