"""How many callbacks of a subscription run at the same time, where it finds that out itself (`concurrency="auto"`).

More of them are worth it while more gets done by them. Where callbacks wait for a network, twice as many get twice as
much done, as a message takes as long as before. Where they compute, or wait for one another or for the same database, a
message only takes longer. So the time of messages is measured, in stretches of work, and after some of them another
number is tried for one: twice as many, or half as many. Of the two numbers the larger one is kept if it is worth it.

More than there is work for are never tried. That is told by what waits for a callback: it is what acknowledgements take
longer than callbacks.

Plain decisions; times are seconds of one clock.
"""

from __future__ import annotations

from typing import Final, NamedTuple

AUTO_MAX: Final = 64
"""Each is a thread."""
STRETCH_SECONDS: Final = 0.1
"""A stretch takes at least so long, and two turns of all callbacks: less says nothing."""
WORTH: Final = 0.25
"""The part of what could be gained that must be: twice as many callbacks have to get a quarter more done."""
REST_MAX: Final = 64
"""Stretches until the next try, in the end: trying costs, where all is as it should be."""
CHANGED: Final = 1.5
"""Messages that take so many times as long, or as short, as they did are other work: what was tried counts no more."""


class _Tried(NamedTuple):
    size: int
    each: float
    """Seconds that a message took."""

    @property
    def pace(self) -> float:
        """Messages in a second."""
        return self.size / self.each


class Staff:
    """The callbacks of one subscription."""

    __slots__ = (
        "_before", "_each", "_jobs", "_messages", "_most", "_rest", "_resting", "_seconds", "_since", "_upwards",
        "_wanted", "size",
    )  # fmt: skip

    def __init__(self, most: int = AUTO_MAX) -> None:
        self._most = most
        self.size = 1
        """So many are to run."""
        self._since = -float("inf")
        """When that was decided."""
        self._before: _Tried | None = None
        """What the present size is tried against."""
        self._each = 0.0
        self._upwards = True
        self._rest, self._resting = 0, 1
        """Stretches until the next try, and how many it was at last."""
        self._jobs = self._messages = self._wanted = 0
        self._seconds = 0.0

    def worked(self, messages: int, began: float, now: float, wanted: int) -> None:
        """A callback took so many messages; `wanted` of them could run side by side, with what waits now."""
        self._wanted = max(self._wanted, wanted)
        if began <= self._since:
            return  # it ran beside another number of them
        self._jobs += 1
        self._messages += messages
        self._seconds += now - began
        if self._messages and self._jobs >= 2 * self.size and self._seconds >= STRETCH_SECONDS * self.size:
            size, wanted, each = self.size, min(self._wanted, self._most), self._seconds / self._messages
            self._begin()
            self._decide(each, wanted)
            if self.size != size:
                self._since = now

    def _begin(self) -> None:
        """Begin a stretch."""
        self._jobs = self._messages = self._wanted = 0
        self._seconds = 0.0

    def _decide(self, each: float, wanted: int) -> None:
        before, self._before = self._before, None
        if wanted < self.size:
            self.size = max(1, wanted)
        elif before is not None:
            self._judge(before, _Tried(self.size, each))
        elif self._rest and 1 / CHANGED < each / self._each < CHANGED:
            self._rest -= 1
        else:
            self._try(each, wanted)

    def _try(self, each: float, wanted: int) -> None:
        other = min(2 * self.size, wanted) if self._upwards else (self.size + 1) // 2
        if other == self.size:
            self._upwards = not self._upwards
            return
        if self._each and not 1 / CHANGED < each / self._each < CHANGED:
            self._resting = 1
        self._before, self.size = _Tried(self.size, each), other

    def _judge(self, before: _Tried, now: _Tried) -> None:
        small, large = sorted((before, now))
        kept = large if large.pace / small.pace >= 1 + WORTH * (large.size / small.size - 1) else small
        self.size, self._each = kept
        if kept is now:
            self._rest, self._resting = 0, 1
        else:
            self._upwards = not self._upwards
            self._rest = self._resting = min(2 * self._resting, REST_MAX)
