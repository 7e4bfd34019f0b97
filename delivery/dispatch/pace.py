"""When the next push of a subscription may go out on this host, and how large.

Plain decisions; times are seconds of one clock.
"""

from __future__ import annotations

from typing import Final

from delivery.metastore.flow import Flow

FOREVER: Final = float("inf")
AHEAD_SECONDS: Final = 0.1
"""What may go out at once after a rest, and in one push, as a time at the limit's rate; a message always may."""


class Rate:
    """A limit, as one number: when everything so far would have gone out, had it gone evenly."""

    __slots__ = ("_even", "_rate")

    def __init__(self, rate: float) -> None:
        """`rate` is per second; 0 for no limit."""
        self._rate = rate
        self._even = -FOREVER

    @property
    def largest(self) -> float:
        """Of a push."""
        return max(1.0, self._rate * AHEAD_SECONDS) if self._rate else FOREVER

    def delay(self, now: float) -> float:
        """Seconds until more may go out; not above 0 when it may now."""
        return self._even - AHEAD_SECONDS - now

    def spend(self, amount: float, now: float) -> None:
        """So much went out. Far more than `largest` may: what follows waits for it."""
        if self._rate:
            self._even = max(self._even, now) + amount / self._rate


class Pace:
    """Of one subscription on one host: all its partitions there together."""

    __slots__ = ("_bytes", "_messages", "_paused_until", "largest", "regulates")

    def __init__(self) -> None:
        self._paused_until = -FOREVER
        self._messages = self._bytes = Rate(0)
        self.largest = (FOREVER, FOREVER)
        """Messages and bytes of a push."""
        self.regulates = False
        """Whether there is anything to wait for; else no clock needs to be asked."""

    def pause(self, seconds: float | None, now: float) -> None:
        """Let nothing out for `seconds`, which may be infinite; None ends a pause."""
        self._paused_until = -FOREVER if seconds is None else now + seconds
        self._look()

    def limit(self, flow: Flow, share: float) -> None:
        """Keep to this share of a subscription's limits from now on; what went out before counts no more."""
        self._messages = Rate(flow.messages_per_second * share)
        self._bytes = Rate(flow.bytes_per_second * share)
        self.largest = (self._messages.largest, self._bytes.largest)
        self._look()

    def delay(self, now: float) -> float:
        """Seconds until a push may go out; 0 when one may now."""
        return max(0.0, self._paused_until - now, self._messages.delay(now), self._bytes.delay(now))

    def sent(self, messages: int, size: int, now: float) -> None:
        """A push went out."""
        self._messages.spend(messages, now)
        self._bytes.spend(size, now)

    def _look(self) -> None:
        self.regulates = self._paused_until > -FOREVER or min(self.largest) < FOREVER
