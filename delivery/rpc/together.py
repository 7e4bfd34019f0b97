"""Doing something once, at the end, however often it was asked for: one write for many replies."""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Put(threading.local):
    """Of each thread that runs a trio program."""

    off: dict[Callable[[], None], None] | None = None


_put = _Put()


class together:  # noqa: N801 - it reads as the statement that it is
    """Inside, `soon` puts calls off until the end, and makes each one once. Nothing in it may wait.

    A class, for a generator takes five times as long, and each batch comes through here.
    """

    __slots__ = ("_inner",)

    def __enter__(self) -> None:
        self._inner = _put.off is not None
        if not self._inner:
            _put.off = {}

    def __exit__(self, *_: object) -> None:
        if not self._inner:
            calls, _put.off = _put.off, None
            for call in calls or ():
                call()


def soon(call: Callable[[], None]) -> None:
    """Make the call: now, or at the end of `together`."""
    if _put.off is None:
        call()
    else:
        _put.off[call] = None
