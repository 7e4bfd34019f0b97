"""Threads that do the same at once, and interrupt one another wherever they can."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def interrupting(story: Callable[[T], object], arguments: Iterable[T], seconds: float) -> None:
    """Call the story with each of the arguments in a thread of its own; return when all have, or after `seconds` each.

    They take turns after every few steps, so that one comes in the midst of what another does.
    """
    every = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=story, args=(argument,)) for argument in arguments]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(seconds)
    finally:
        sys.setswitchinterval(every)
