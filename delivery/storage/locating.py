"""Finding the id behind which so many messages lie, by nothing but counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from delivery.storage.base import Amount


def locate(measure: Callable[[int, int], Amount], after: int, until: int, wanted: Sequence[int]) -> list[int]:
    """For each number in `wanted`, which rise: the smallest id up to which so many lie above `after`.

    `until` where there are not so many. `measure(after, id)` says how much lies above the one and up to the other.
    """
    found: list[int] = []
    low = after
    for number in wanted:
        high = until
        while low < high:  # below `low` there are too few, up to `high` enough, or it is the end
            middle = (low + high) // 2
            if measure(after, middle).messages >= number:
                high = middle
            else:
                low = middle + 1
        found.append(low)
    return found
