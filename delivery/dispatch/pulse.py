"""The Pulse: what one worker notes as it goes, so that its silence can be explained. Per push, never per message."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from delivery.dispatch.window import Window

MARK_SECONDS: Final = 10.0
"""Between two looks at the position, from which the trend is told."""


class Counters(Protocol):
    """Where deliveries are counted."""

    def pushed(self, queue: str, subscription: str, messages: int, size: int) -> None:
        """A push went out."""

    def acknowledged(self, queue: str, subscription: str, messages: int) -> None:
        """A push was acknowledged."""

    def failed(self, queue: str, subscription: str) -> None:
        """A listener failed."""


class Pulse:
    """The counters of one worker: what they hear goes on to those of the host. Times are of `clock`, None for never."""

    __slots__ = (
        "_clock", "_counters", "_earlier", "_highest", "_mark", "_note", "_window", "acknowledged_at", "again_at",
        "began", "delivered_at", "first_out_since", "moved_at", "redelivered",
    )  # fmt: skip

    def __init__(
        self, counters: Counters, window: Window, note: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`note` is told of every move of the position."""
        self._counters, self._window, self._note, self._clock = counters, window, note, clock
        self.began = clock()
        self.delivered_at: float | None = None
        self.acknowledged_at: float | None = None
        self.moved_at: float | None = None
        """When the position moved last."""
        self.first_out_since = self.began
        """Since when the first push that is out has nothing before it; means nothing when none is out."""
        self.redelivered = 0
        self.again_at: float | None = None
        """When the worker goes on after a failure."""
        self._highest = window.position
        self._earlier = self._mark = (self.began, window.position)

    def pushed(self, queue: str, subscription: str, messages: int, size: int) -> None:
        """A push went out, and is in the window unless it is one of parked messages."""
        self._counters.pushed(queue, subscription, messages, size)
        window, self.delivered_at = self._window, self._clock()
        if window.unacknowledged <= messages:
            self.first_out_since = self.delivered_at
        if window.told <= self._highest:
            self.redelivered += messages
        else:
            self._highest = window.told

    def acknowledged(self, queue: str, subscription: str, messages: int) -> None:
        """A push was acknowledged."""
        self._counters.acknowledged(queue, subscription, messages)
        self.acknowledged_at = self._clock()

    def failed(self, queue: str, subscription: str) -> None:
        """A listener failed."""
        self._counters.failed(queue, subscription)

    def moved(self, position: int) -> None:
        """The position moved: acknowledged, or nothing was wanted of what follows."""
        self._note(position)
        self.moved_at = self.first_out_since = now = self._clock()
        if now - self._mark[0] >= MARK_SECONDS:
            self._earlier, self._mark = self._mark, (now, position)

    def waits(self, seconds: float) -> None:
        """The worker waits so long before it goes on."""
        self.again_at = self._clock() + seconds

    @property
    def trend(self) -> float | None:
        """Seconds that the lag grows each second; None before it moved for long enough.

        Ids are times: a position that comes along by two seconds of the queue in one second catches up by one.
        """
        (earlier, before), now, position = self._earlier, self._clock(), self._window.position
        if now - earlier < MARK_SECONDS or not before or self.moved_at is None:
            return None
        return 1 - ((position >> 15) - (before >> 15)) / 1000 / (now - earlier)
