"""Whose turn it is to be given away: many partitions at once that nothing goes through, few that are busy.

What is on its way competes for the two hosts, so each pauses for longer the more there are. Nobody notices that of a
partition without traffic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Final

import trio

ROOM: Final = 8
"""Partitions without traffic that are on their way at once: as many as keep both hosts busy."""
BUSY_SHARE: Final = 4
"""A busy one takes the room of so many: two of them at once pause for half as long as eight do."""


class Turns:
    """Turns are given in the order in which they are asked for. For the trio thread."""

    def __init__(self) -> None:
        self._next = trio.Lock()
        """Of who waits for room: the others wait behind it."""
        self._room = trio.Semaphore(ROOM)

    @asynccontextmanager
    async def turn(self, *, busy: bool) -> AsyncIterator[Callable[[], None]]:
        """Wait for a turn, which lasts as long as the block; what this gives ends it before."""
        with ExitStack() as held:
            async with self._next:
                for _ in range(BUSY_SHARE if busy else 1):
                    await self._room.acquire()
                    held.callback(self._room.release)
            yield held.close
