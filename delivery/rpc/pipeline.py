"""What is under way on one connection, in order: bounded by items and by bytes, one putter and one taker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

Item = TypeVar("Item")


class Pipeline(Generic[Item]):
    """Items that were put and not dropped yet. An item larger than the bound fits when it is alone."""

    def __init__(self, items_max: int, bytes_max: int) -> None:
        self._items_max, self._bytes_max = items_max, bytes_max
        self._items: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._dropped = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def first(self) -> Item | None:
        """The oldest item; None without any."""
        return self._items[0][0] if self._items else None

    async def room(self, size: int) -> None:
        """Wait until an item of `size` bytes may be put."""
        while self._items and (len(self._items) >= self._items_max or self._bytes + size > self._bytes_max):
            await self._dropped.park()

    def put(self, item: Item, size: int) -> None:
        """Add an item; there must be room."""
        self._items.append((item, size))
        self._bytes += size

    def promote(self, chosen: Callable[[Item], bool]) -> None:
        """Make the oldest item that is `chosen` the first, if there is one."""
        for place, (item, _) in enumerate(self._items):
            if chosen(item):
                found = self._items[place]
                del self._items[place]
                self._items.appendleft(found)
                return

    def drop_first(self) -> None:
        """Remove the oldest item."""
        self._bytes -= self._items.popleft()[1]
        self._dropped.unpark_all()
