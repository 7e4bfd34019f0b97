"""The Bell: waking whoever waits for something to change."""

from __future__ import annotations

import trio


class Bell:
    """A ParkingLot that takes memory only once somebody has waited: there are thousands where nobody does."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: trio.lowlevel.ParkingLot | None = None

    async def wait(self) -> None:
        """Return at the next `ring`."""
        if self._waiting is None:
            self._waiting = trio.lowlevel.ParkingLot()
        await self._waiting.park()

    def ring(self) -> None:
        """Wake all who wait."""
        if self._waiting:
            self._waiting.unpark_all()
