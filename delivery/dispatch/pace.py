"""When the next push of a subscription may go out on this host. Plain decisions; times are seconds of one clock."""

from __future__ import annotations

from typing import Final

FOREVER: Final = float("inf")


class Pace:
    """Of one subscription on one host: all its partitions there together."""

    __slots__ = ("_paused_until",)

    def __init__(self) -> None:
        self._paused_until = -FOREVER

    @property
    def regulates(self) -> bool:
        """Whether there is anything to wait for; else no clock needs to be asked."""
        return self._paused_until > -FOREVER

    def pause(self, seconds: float | None, now: float) -> None:
        """Let nothing out for `seconds`, which may be infinite; None ends a pause."""
        self._paused_until = -FOREVER if seconds is None else now + seconds

    def delay(self, now: float) -> float:
        """Seconds until a push may go out; 0 when one may now."""
        return max(0.0, self._paused_until - now)
