"""SIGTERM as an ordinary end of a command, so that nothing is left running or registered."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def on_sigterm(action: Callable[[], object]) -> Iterator[None]:
    """Call `action` in the main thread when SIGTERM comes; the former handling is back afterwards."""

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what signal handlers are called with
        action()

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
