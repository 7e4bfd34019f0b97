"""How busy a host is: moving rates, and when a change of them is worth telling the others. Plain; `now` in seconds."""

from __future__ import annotations

import math
from typing import Final

import msgspec

AVERAGED_SECONDS: Final = 10.0
"""After so long without traffic a rate has fallen to a third."""
REFRESH_SECONDS: Final = 2.0
"""A host's record is refreshed at most so often: one write per host, however many partitions move."""

_RATE_CHANGE: Final = 0.2
"""What a rate must have changed by, as a part of itself, to be told."""
_MESSAGES_FLOOR: Final = 100.0
_BYTES_FLOOR: Final = 256 * 1024.0
"""Below these a rate is noise."""
_SHORTEST_SECONDS: Final = 0.001
"""Nothing can be said of a shorter time."""


class Load(msgspec.Struct, frozen=True):
    """What a host tells of itself in its record."""

    partitions: int = 0
    messages_per_second: float = 0.0
    bytes_per_second: float = 0.0
    draining: bool = False

    def differs(self, shown: Load) -> bool:
        """Whether it is worth replacing `shown`: another number of partitions, or a rate that changed by a fifth."""
        return (
            (self.partitions, self.draining) != (shown.partitions, shown.draining)
            or _changed(self.messages_per_second, shown.messages_per_second, _MESSAGES_FLOOR)
            or _changed(self.bytes_per_second, shown.bytes_per_second, _BYTES_FLOOR)
        )


def _changed(now: float, shown: float, floor: float) -> bool:
    return abs(now - shown) > max(floor, _RATE_CHANGE * max(now, shown))


class Traffic:
    """What goes into one partition: totals, and rates that follow them."""

    __slots__ = ("_at", "_seen_bytes", "_seen_messages", "bytes", "bytes_per_second", "messages", "messages_per_second")

    def __init__(self, now: float) -> None:
        self.messages = self.bytes = self._seen_messages = self._seen_bytes = 0
        self.messages_per_second = self.bytes_per_second = 0.0
        self._at = now

    @property
    def busy(self) -> bool:
        """Whether something came since `follow`, or comes every second."""
        return self.messages > self._seen_messages or self.messages_per_second >= 1.0

    def add(self, messages: int, size: int) -> None:
        """So much was stored."""
        self.messages += messages
        self.bytes += size

    def follow(self, now: float) -> None:
        """Let the rates follow what came since the last call."""
        passed = now - self._at
        if passed < _SHORTEST_SECONDS:
            return
        weight = 1.0 - math.exp(-passed / AVERAGED_SECONDS)
        self.messages_per_second += weight * ((self.messages - self._seen_messages) / passed - self.messages_per_second)
        self.bytes_per_second += weight * ((self.bytes - self._seen_bytes) / passed - self.bytes_per_second)
        self._at, self._seen_messages, self._seen_bytes = now, self.messages, self.bytes
