"""The state of the connection to ZooKeeper, as those see it who wait for it or act on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

from delivery import logs

State = Literal["steady", "suspended", "lost"]
"""`steady`; `suspended`: no connection, the session and what is ephemeral may live on or not; `lost`: the session is
over, and what was ephemeral with it. ZooKeeper tells that a session is over only when the connection is back: whoever
acts by it keeps a clock of its own while the state is `suspended`."""

StateCallback = Callable[[State], None]

log = logs.logger(__name__)


class ConnectionState:
    """The state and the session behind it. Thread-safe; callbacks come on the thread that brings the news."""

    def __init__(self) -> None:
        self.state: State = "lost"
        self.session = 0
        """0 when there is none."""
        self._open = False
        self._changed = threading.Condition()
        self._callbacks: list[StateCallback] = []

    def call(self, callback: StateCallback) -> None:
        """Call `callback` with each new state from now on."""
        self._callbacks.append(callback)

    def open(self) -> None:
        """From here on it is worth waiting for a connection."""
        self._open = True

    def close(self) -> None:
        """The end, by our own will: waiters give up, callbacks are not called."""
        with self._changed:
            self._open, self.state, self.session = False, "lost", 0
            self._changed.notify_all()

    def change(self, state: State, session: int) -> None:
        """Tell everybody, unless closed; a callback that raises is logged, and the others are called all the same."""
        with self._changed:
            if not self._open:
                return
            self.state, self.session = state, session
            self._changed.notify_all()
        for callback in tuple(self._callbacks):
            try:
                callback(state)
            except Exception:
                log.exception("a callback for the state of ZooKeeper failed")

    def wait_steady(self, end: float) -> bool:
        """Wait until the state is steady, at most until the monotonic clock says `end`, and say whether it is."""
        with self._changed:
            self._changed.wait_for(lambda: self.state == "steady" or not self._open, max(0.0, end - time.monotonic()))
            return self.state == "steady"
