"""The time of day, from one place: an engine in a test brings a clock of its own (delivery.testing)."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]

_clock: Clock = time.time


def seconds() -> float:
    """Since 1970."""
    return _clock()


def ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000 if _clock is time.time else int(_clock() * 1000)


def use(clock: Clock) -> Clock:
    """Take the time from `clock` from now on, in all of the process; gives what it came from before."""
    global _clock
    before, _clock = _clock, clock
    return before
