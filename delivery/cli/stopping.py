"""SIGTERM as an ordinary end of a command, so that nothing is left running or registered.

So is the end of its terminal (SIGHUP), except where that is to be outlived, as under nohup.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


def ends() -> list[signal.Signals]:
    """The signals that are an ordinary end, beside Ctrl-C."""
    outlived = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGTERM] if outlived else [signal.SIGTERM, signal.SIGHUP]


@contextlib.contextmanager
def on_sigterm(action: Callable[[], object]) -> Iterator[None]:
    """Call `action` in the main thread when SIGTERM or SIGHUP comes; the former handling is back afterwards."""

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what signal handlers are called with
        action()

    before = {number: signal.signal(number, handle) for number in ends()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
