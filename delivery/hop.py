"""Blocking calls of a trio program: each in a thread, unless the loop says that none of them takes any time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import trio

T = TypeVar("T")

AT_ONCE: Final = trio.lowlevel.RunVar[bool]("at_once", default=False)
"""Set in a loop all of whose stores are in memory and that must not depend on threads (delivery.testing)."""


async def run_sync(
    work: Callable[..., T], *args: object, limiter: trio.CapacityLimiter | None = None
) -> T:  # fmt: skip
    """`work(*args)`, as trio.to_thread.run_sync makes it; where calls are made at once, without any other task going
    on in between.
    """
    if AT_ONCE.get():
        return work(*args)
    return await trio.to_thread.run_sync(partial(work, *args), limiter=limiter)
