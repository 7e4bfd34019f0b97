"""Doing something once, at the end, however often it was asked for: one write for many replies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Put(threading.local):
    """Of each thread that runs a trio program."""

    off: dict[Callable[[], None], None] | None = None


_put = _Put()


@contextmanager
def together() -> Iterator[None]:
    """Inside, `soon` puts calls off until the end, and makes each one once. Nothing in it may wait."""
    if _put.off is not None:
        yield
        return
    _put.off = {}
    try:
        yield
    finally:
        calls, _put.off = _put.off, None
        for call in calls:
            call()


def soon(call: Callable[[], None]) -> None:
    """Make the call: now, or at the end of `together`."""
    if _put.off is None:
        call()
    else:
        _put.off[call] = None
