"""Whose turn it is to be read again although nobody hinted at it: some queues each time, and all of them in time.

Watches tell of what changes; reading without a hint is for the one that got lost. With all that is attached read each
time, ten thousand subscriptions to which nothing comes would cost a host more by that than by anything else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from typing import Final

EACH_TIME: Final = 1000
"""Subscriptions that are read each time. A queue is read as a whole; after one with more nothing is, for a while."""


class Turns:
    """Plain decisions: what is read, and how often, is up to whoever asks."""

    def __init__(self) -> None:
        self._behind = ""
        """The queue that was last."""
        self._room = 0
        self._sizes: dict[str, int] = {}

    def note(self, sizes: Mapping[str, int]) -> None:
        """So many subscriptions of some queues were read."""
        self._sizes |= sizes

    def next(self, queues: Collection[str]) -> set[str]:
        """Those of `queues` whose turn it is."""
        self._sizes = {queue: size for queue, size in self._sizes.items() if queue in queues}
        self._room = min(self._room, 0) + EACH_TIME
        order = sorted(queues)
        first = bisect_right(order, self._behind)
        taken: set[str] = set()
        for queue in order[first:] + order[:first]:
            if self._room <= 0:
                break
            taken.add(queue)
            self._room -= max(1, self._sizes.get(queue, 0))
            self._behind = queue
        return taken
