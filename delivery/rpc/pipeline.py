"""What is under way on one connection, in order: bounded by items and by bytes, one putter and one taker."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import trio

Item = TypeVar("Item", bound=Hashable)


def _one() -> int:
    return 1


class Pipeline(Generic[Item]):
    """Items that were put and not dropped yet, each once. An item larger than the bound fits when it is alone."""

    def __init__(self, items_max: int, bytes_max: int, shares: Callable[[], int] = _one) -> None:
        """`shares` says how many times that may be put now: by so many who share the connection."""
        self._items_max, self._bytes_max, self._shares = items_max, bytes_max, shares
        self._items: OrderedDict[Item, int] = OrderedDict()
        self._chosen: deque[Item] = deque()
        self._bytes = 0
        self._dropped = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def first(self) -> Item | None:
        """The oldest item; None without any."""
        return next(iter(self._items), None)

    @property
    def chosen(self) -> Item | None:
        """The item that was chosen first of those that are there; None without any."""
        return self._chosen[0] if self._chosen else None

    async def room(self, size: int) -> None:
        """Wait until an item of `size` bytes may be put."""
        while self._items and not self._fits(size):
            await self._dropped.park()

    def _fits(self, size: int) -> bool:
        shares = self._shares()
        return len(self._items) < shares * self._items_max and self._bytes + size <= shares * self._bytes_max

    def put(self, item: Item, size: int) -> None:
        """Add an item; there must be room."""
        self._items[item] = size
        self._bytes += size

    def choose(self, item: Item) -> None:
        """Mark an item, if it is there."""
        if item in self._items:
            self._chosen.append(item)

    def drop(self, item: Item) -> None:
        """Remove the first item, or the one that is chosen first."""
        if self._chosen and self._chosen[0] is item:
            self._chosen.popleft()
        self._bytes -= self._items.pop(item)
        if self._dropped:
            self._dropped.unpark_all()
