"""What the programs of a chaos run share: orders on their command line, an end by SIGTERM, and patience."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

import msgspec

from delivery import connect
from delivery.client import Client
from delivery.embedded.lifeline import end_with_parent
from delivery.errors import HootError

T = TypeVar("T", bound=msgspec.Struct)

AGAIN_SECONDS = 0.2
"""Until something is tried again that failed and may pass."""


def arguments(orders: msgspec.Struct) -> list[str]:
    """Those of Python to start the program whose orders these are."""
    return ["-m", type(orders).__module__, msgspec.json.encode(orders).decode()]


def given(kind: type[T]) -> T:
    """The orders of this process, which from now on ends with the run."""
    end_with_parent()
    return msgspec.json.decode(sys.argv[1], type=kind)


def told_to_stop() -> threading.Event:
    """Set by SIGTERM."""
    stop = threading.Event()
    on_sigterm(stop.set)
    return stop


def on_sigterm(action: Callable[[], object]) -> None:
    """Do it once, in a thread: a signal finds the main one anywhere, also where it holds the lock of an event."""
    told = SimpleQueue[None]()  # signal handlers may put something in

    def work() -> None:
        told.get()
        action()

    threading.Thread(target=work, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: told.put(None))


def connected(zookeeper: str, stop: threading.Event) -> Client | None:
    """A client, as soon as ZooKeeper answers; None when told to stop before that."""
    while not stop.is_set():
        try:
            return connect(zookeeper)
        except HootError as error:
            print(f"connecting: {error!r}", flush=True)
            stop.wait(AGAIN_SECONDS)
    return None
