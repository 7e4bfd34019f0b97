"""What bounds the pushes of one partition of a subscription, beside its listener's socket: gate and window."""

from __future__ import annotations

import trio

from delivery.dispatch.adapting import Adapting
from delivery.dispatch.gate import Gate
from delivery.dispatch.window import Sent, Window


class Outlet:
    """Keeps the window as large as the subscription says, or as it can do with."""

    def __init__(self, window: Window, gate: Gate | None = None, adapting: Adapting | None = None) -> None:
        """Without a `gate` nothing holds pushes up; without `adapting` the window is as it was made."""
        self.gate = gate or Gate()
        self._window, self._adapting = window, adapting
        self._limits = (window.messages_max, window.bytes_max)

    def fit(self) -> tuple[float, float]:
        """Set the window's limits; gives messages and bytes of a push."""
        window, flow, (messages_max, bytes_max) = self._window, self.gate.flow, self._limits
        wanted = largest = flow.window_messages or messages_max
        if self._adapting is not None and not flow.window_messages:
            wanted, largest = self._adapting.messages, self._adapting.largest
        window.messages_max = min(messages_max, wanted)
        window.span_max = min(messages_max, flow.window_messages or messages_max)
        window.bytes_max = min(bytes_max, flow.window_bytes or bytes_max)
        messages, size = self.gate.largest
        return min(messages, largest, window.messages_max), min(size, window.bytes_max)

    def sent(self, sent: Sent) -> None:
        """A push goes out."""
        self.gate.sent(sent.messages, sent.bytes)
        if self._adapting is not None:
            sent.at = trio.current_time()

    def answered(self, sent: Sent, abreast: int | None) -> None:
        """A push was acknowledged, by a listener that works on so many messages at the same time, if it says so."""
        if self._adapting is not None:
            self._adapting.answered(sent.messages, sent.at, trio.current_time(), abreast or 1)
