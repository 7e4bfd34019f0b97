"""Write pointers: each tells when its transaction began, and whether it is one of Hoot's own.

A pointer is a time, in ms since 1970, times a million, and a number below a million. Tephra counts from 0 within each
millisecond. Hoot gives out the last thousand numbers of every hundredth millisecond, so that topics know without asking
which transactions its own service must know, and which are those of clients that brought another service along.
"""

from __future__ import annotations

from typing import Final

POINTERS_PER_MS: Final = 1_000_000
OWN_MS: Final = 100
"""One of so many milliseconds has pointers of Hoot's own."""
OWN_FIRST: Final = 999_000
"""Their first number within it; they go on to its end."""
_OWN_STEP: Final = OWN_MS * POINTERS_PER_MS


def began_ms(pointer: int) -> int:
    """When a pointer's transaction began; up to OWN_MS too early."""
    return pointer // POINTERS_PER_MS


def is_own(pointer: int) -> bool:
    """Whether Hoot's service gives out such pointers."""
    return pointer > 0 and OWN_FIRST <= pointer % _OWN_STEP < POINTERS_PER_MS


def is_run(first: int, count: int) -> bool:
    """Whether `count` pointers from `first` on are all own ones."""
    last = first + count - 1
    return is_own(first) and is_own(last) and began_ms(first) == began_ms(last)


def first_run(above: int, now: int) -> int:
    """Where the next run of own pointers begins that is not below `above` and, if that can be, is of the time `now`."""
    at_least = -(-(above - OWN_FIRST) // _OWN_STEP)
    return max(now // OWN_MS, at_least) * _OWN_STEP + OWN_FIRST
