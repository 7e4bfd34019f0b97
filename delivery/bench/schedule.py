"""When messages of a steady rate are due, and waiting until then."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Final

_BEGINS_NS: Final = 100_000_000
"""How long before the first one, so that it is not late."""
_PR_SET_TIMERSLACK: Final = 29  # linux/prctl.h


class Schedule:
    """Begins soon; made by the thread that will wait. Who is late does not wait: the time is that of the schedule."""

    __slots__ = ("_begun_ns", "_interval_ns")

    def __init__(self, rate: float) -> None:
        """`rate` messages in a second."""
        _wake_on_time()
        self._begun_ns, self._interval_ns = time.monotonic_ns() + _BEGINS_NS, 1e9 / rate

    def wait(self, number: int) -> int:
        """Return when message `number`, from 0, is due; the time of that by the monotonic clock, in ns."""
        due = self._begun_ns + int(number * self._interval_ns)
        if (early := due - time.monotonic_ns()) > 0:
            time.sleep(early / 1e9)
        return due


def _wake_on_time() -> None:
    """Linux may let a thread sleep 50 µs longer than it asked for, which would count as latency of what it sends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
