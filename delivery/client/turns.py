"""Taking turns: of many threads that wait for what one of them can bring about, one leads and the others sleep.

The leader wakes those whose wish came true, and when its own has, hands the lead to one whose wish has not. Each thread
is woken once, so that a group of sixty-four costs sixty-four wake-ups and not a scramble for a lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic


class _Waiter:
    __slots__ = ("finished", "leads", "woken")

    def __init__(self, finished: Callable[[], bool]) -> None:
        self.finished = finished
        self.leads = False
        self.woken = threading.Lock()
        self.woken.acquire()


class Turns:
    """Thread-safe. Who gets True from `take` leads until it calls `pass_on`, and calls `tell` as things change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._line: deque[_Waiter] = deque()

    def take(self, finished: Callable[[], bool], end: float) -> bool:
        """Wait for the lead, or for what `finished` tells of, until `end` (monotonic). True: the caller leads."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            waiter = _Waiter(finished)
            self._line.append(waiter)
        try:
            waiter.woken.acquire(timeout=max(0.0, min(end - monotonic(), threading.TIMEOUT_MAX)))
        except BaseException:
            if not self._leave(waiter):
                self.pass_on()
            raise
        return not self._leave(waiter)

    def tell(self) -> None:
        """Wake those whose wish came true."""
        with self._lock:
            line, self._line = self._line, deque()
            for waiter in line:
                if waiter.finished():
                    waiter.woken.release()
                else:
                    self._line.append(waiter)

    def pass_on(self) -> None:
        """Give the lead to the first in line, if there is one."""
        self.tell()
        with self._lock:
            if self._line:
                waiter = self._line.popleft()
                waiter.leads = True
                waiter.woken.release()
            else:
                self._taken = False

    def _leave(self, waiter: _Waiter) -> bool:
        """Out of the line; False for one that was given the lead."""
        with self._lock:
            if waiter in self._line:
                self._line.remove(waiter)
            return not waiter.leads
