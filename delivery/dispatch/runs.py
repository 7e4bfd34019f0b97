"""The numbers of runs, by which a subscriber tells a push of the present worker from one of an earlier."""

from __future__ import annotations

from delivery import wall


class Runs:
    """One sequence for all deliveries of a host. For its trio thread.

    A listener answers what comes under a lower number than it has seen as stale, and takes what comes under the same
    number for a part of that run, also after the position was moved. So a new worker's first run must be above all runs
    of those before it; its later ones count on by themselves.
    """

    def __init__(self) -> None:
        self._last = 0

    def first(self) -> int:
        """Of a new worker.

        By the clock, since a host that was started again does not know the runs of the one before it, and rising also
        when the clock steps back.
        """
        self._last = max(self._last + 1, wall.ms())
        return self._last

    def ended(self, last: int) -> None:
        """A worker is no more, and that was its last: runs that fail at once and come again at once outrun clocks."""
        self._last = max(self._last, last)
