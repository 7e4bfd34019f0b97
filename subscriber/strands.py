"""Threads on which strands of jobs run side by side, the jobs of each strand one after another."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from queue import Empty, SimpleQueue
from typing import Final

from delivery import logs
from subscriber.staff import Staff

Job = Callable[[], None]

log = logs.logger(__name__)

SPARE_SECONDS: Final = 60.0
"""A thread that `relieve` began ends when nothing came to it for so long."""

HUNG_MAX: Final = 64
"""Threads that are with callbacks that hang, in whose place there is another one. Each costs a thread for as long."""

_END: Final = object()
"""No strand: a thread that gets it ends."""


class Strands:
    """Works jobs off in the order of their submission within a strand, and strands by turns."""

    def __init__(
        self, threads: int, on_idle: Callable[[], None], staff: Staff | None = None, *,
        on_error: Callable[[BaseException], object], on_crowded: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """`on_idle` is called by the last thread that ends. `staff` says from then on how many there are to be.

        Jobs are not meant to raise. `on_error` hears of what one raises all the same, on its thread, which goes on.

        `on_crowded` is called, by whoever submits, when a strand has to wait for a thread: call `relieve` from then on,
        every now and then, until it says that none does.
        """
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Job]] = {}
        """By strand, what was submitted and has not begun; a strand is there as long as a job of it runs or waits."""
        self._ready: SimpleQueue[Hashable] = SimpleQueue()
        self._stopped = False
        self._on_idle, self._staff, self._on_crowded, self._on_error = on_idle, staff, on_crowded, on_error
        self._patience = None if on_crowded is None else SPARE_SECONDS
        self._wanted = 0
        """Threads that are not to end before `stop`."""
        self._hung = self._spares = 0
        """Of these, those that do not count, as they hang, and those that are there in their place."""
        self._threads: set[threading.Thread] = set()
        self._refused = False
        """Whether the system gave no thread when one was wanted last."""
        self._ended = self._ended_before = 0
        """Jobs, now and when it was looked last whether strands wait."""
        self._watched = False
        self._resize(threads)

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is one of these."""
        return threading.current_thread() in self._threads

    @property
    def is_idle(self) -> bool:
        """Whether all threads have ended."""
        return not self._threads

    @property
    def abreast(self) -> int:
        """How many jobs run at the same time at most, without those that hang."""
        return self._wanted - self._spares

    def worked(self, messages: int, began: float) -> None:
        """A job has called for so many messages since `began`, by the monotonic clock: more threads may follow of it,
        or fewer.
        """
        if self._staff is None:
            return
        with self._lock:
            self._staff.worked(messages, began, time.monotonic(), len(self._waiting))
            if not self._stopped:
                self._resize(self._staff.size + self._spares)

    def submit(self, strand: Hashable, job: Job) -> None:
        """Have `job` called after all of its strand that was submitted before. Any thread may submit.

        The first thread is begun here, if there is none yet: raises RuntimeError, with nothing submitted, when the
        system gives none.
        """
        with self._lock:
            waiting = self._waiting.get(strand)
            if waiting is not None:
                waiting.append(job)
                return
            if not self._wanted and not self._stopped:
                self._resize(1)  # first: what waits for a thread that cannot begin would do so for ever
            self._waiting[strand] = deque((job,))
            tell = None if self._watched or len(self._waiting) <= self._wanted else self._on_crowded
            if tell is not None:
                self._watched, self._ended_before = True, self._ended
        self._ready.put(strand)
        if tell is not None:
            tell()

    def relieve(self) -> bool:
        """Have another thread if a strand waits for one and no job has ended since the last call: all threads are with
        callbacks that take their time. Says whether to look again.
        """
        with self._lock:
            self._watched = 0 < self._wanted < len(self._waiting)
            if self._watched and self._ended == self._ended_before:
                self._resize(self._wanted + 1)
            self._ended_before = self._ended
            return self._watched

    def hung(self, hangs: bool) -> None:
        """A job takes longer than it may: its thread is given up, and another one goes on in its place, as long as not
        too many hang. Or (False) it has ended after all.
        """
        with self._lock:
            self._hung += 1 if hangs else -1
            if self._hung > HUNG_MAX and hangs:
                log.warning("%d callbacks hang: no other thread goes on in the place of the last one", self._hung)
            spares = min(self._hung, HUNG_MAX)
            if not self._stopped and (spares > self._spares if hangs else spares < self._spares):
                before = self._wanted
                self._resize(before + 1 if hangs else before - 1)
                self._spares += self._wanted - before

    def stop(self) -> None:
        """End the threads when nothing is left to do, what jobs submit meanwhile included. They are not waited for."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            if not self._waiting:
                self._resize(0)

    def _work(self) -> None:
        while (strand := self._next()) is not _END:
            self._work_off(strand)
        with self._lock:
            self._threads.discard(threading.current_thread())
            last = not self._threads
        if last:
            self._on_idle()

    def _next(self) -> Hashable:
        """The strand whose turn it is; _END also when too little comes for this thread."""
        while True:
            try:
                return self._ready.get(timeout=self._patience)
            except Empty:
                with self._lock:
                    if max(1, len(self._waiting)) < self._wanted:
                        self._wanted -= 1
                        return _END

    def _work_off(self, strand: Hashable) -> None:
        """Do the jobs of a strand, as long as there are any and no other strand is ready."""
        jobs = self._waiting[strand]
        while True:
            self._do(jobs.popleft())
            self._ended += 1  # threads may count one instead of two: what matters is that it changes
            if not jobs and self._is_over(strand, jobs):
                return
            if not self._ready.empty():
                self._ready.put(strand)
                return

    def _do(self, job: Job) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - a thread that ended here would take its strands along
            self._on_error(error)

    def _is_over(self, strand: Hashable, jobs: deque[Job]) -> bool:
        """Whether nothing is left to do of a strand; it is forgotten then."""
        with self._lock:
            if jobs:
                return False
            del self._waiting[strand]
            if self._stopped and not self._waiting:
                self._resize(0)
            return True

    def _resize(self, threads: int) -> None:
        """Begin threads, or have some end at their turn. Raises RuntimeError when there is none, and can be none."""
        for _ in range(threads, self._wanted):
            self._ready.put(_END)
        self._wanted = min(self._wanted, threads)
        while self._wanted < threads and self._begin_thread():
            self._wanted += 1

    def _begin_thread(self) -> bool:
        """Whether the system gave one. Raises RuntimeError for the first, without which nothing would be done."""
        thread = threading.Thread(target=self._work, name="subscriber-strand", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            self._threads.discard(thread)
            if not self._wanted:
                raise
            if not self._refused:
                log.warning("callbacks go on with %d threads: %s", self._wanted, error)
            self._refused = True
            return False
        self._refused = False
        return True
