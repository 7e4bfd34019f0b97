"""Threads on which several callbacks of a subscription run side by side, each strand of them one after another."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Final

from subscriber.staff import Staff

Job = Callable[[], None]

_END: Final = object()
"""No strand: a thread that gets it ends."""


class Strands:
    """Works jobs off in the order of their submission within a strand, and strands by turns. Jobs must not raise."""

    def __init__(self, threads: int, on_idle: Callable[[], None], staff: Staff | None = None) -> None:
        """`on_idle` is called by the last thread that ends. `staff` says from then on how many there are to be."""
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Job]] = {}
        """By strand, what was submitted and has not begun; a strand is there as long as a job of it runs or waits."""
        self._ready: SimpleQueue[Hashable] = SimpleQueue()
        self._stopped = False
        self._on_idle, self._staff = on_idle, staff
        self._wanted = 0
        """Threads that are not to end before `stop`."""
        self._threads: set[threading.Thread] = set()
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
        """How many jobs run at the same time at most."""
        return self._wanted

    def worked(self, messages: int, began: float) -> None:
        """A job has called for so many messages since `began`, by the monotonic clock: more threads may follow of it,
        or fewer.
        """
        if self._staff is None:
            return
        with self._lock:
            self._staff.worked(messages, began, time.monotonic(), len(self._waiting))
            if not self._stopped:
                self._resize(self._staff.size)

    def submit(self, strand: Hashable, job: Job) -> None:
        """Have `job` called after all of its strand that was submitted before. Any thread may submit."""
        with self._lock:
            waiting = self._waiting.get(strand)
            if waiting is not None:
                waiting.append(job)
                return
            self._waiting[strand] = deque((job,))
        self._ready.put(strand)

    def stop(self) -> None:
        """End the threads when nothing is left to do, what jobs submit meanwhile included. They are not waited for."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            idle = not self._waiting
        if idle:
            self._end_threads()

    def _work(self) -> None:
        while (strand := self._ready.get()) is not _END:
            with self._lock:
                job = self._waiting[strand].popleft()
            job()
            self._worked(strand)
        with self._lock:
            self._threads.discard(threading.current_thread())
            last = not self._threads
        if last:
            self._on_idle()

    def _worked(self, strand: Hashable) -> None:
        with self._lock:
            more = bool(self._waiting[strand])
            if not more:
                del self._waiting[strand]
            over = self._stopped and not self._waiting
        if more:
            self._ready.put(strand)
        elif over:
            self._end_threads()

    def _end_threads(self) -> None:
        with self._lock:
            self._resize(0)

    def _resize(self, threads: int) -> None:
        """Begin threads, or have some end at their turn."""
        for _ in range(threads, self._wanted):
            self._ready.put(_END)
        for _ in range(self._wanted, threads):
            thread = threading.Thread(target=self._work, name="subscriber-strand", daemon=True)
            self._threads.add(thread)
            thread.start()
        self._wanted = threads
