"""The slots that the keys of a partition fall into, where several members share it (kind "key_shared").

A message's slot follows from its key alone, or from its id if it has none: whoever looks at it, whenever, finds the
same. So a slot can go from one member to another, and all of a key goes with it. The number of slots is for ever:
states name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import google_crc32c

SLOTS: Final = 4096
"""Enough for shares of even size with hundreds of members, few enough to be looked up in a table."""
ALL: Final = frozenset(range(SLOTS))

Ranges = tuple[tuple[int, int], ...]
"""Slots as people read them: first and last of each stretch, rising."""

_RUN_BITS: Final = 4
"""So many messages without a key (16) stay together: they can go anywhere, and a batch is cut into few pieces."""
_STEP: Final = 2531
"""Odd, and the golden section of SLOTS: what follows one another falls far apart, into every share in its turn."""


def slot_of_key(key: bytes) -> int:
    """By CRC-32C: partitions are chosen by another one, so that the keys of one partition fall into all slots."""
    return int(google_crc32c.value(key)) % SLOTS


def slot_of_id(number: int) -> int:
    """Of a message without a key."""
    return (number >> _RUN_BITS) * _STEP % SLOTS


def slot_of(key: bytes | None, number: int) -> int:
    """Of any message."""
    return slot_of_id(number) if key is None else slot_of_key(key)


def as_ranges(slots: Iterable[int]) -> Ranges:
    """Slots in short."""
    found: list[list[int]] = []
    for slot in sorted(slots):
        if found and slot == found[-1][1] + 1:
            found[-1][1] = slot
        else:
            found.append([slot, slot])
    return tuple((first, last) for first, last in found)


def in_ranges(ranges: Iterable[tuple[int, int]]) -> frozenset[int]:
    """The slots of these stretches."""
    return frozenset(slot for first, last in ranges for slot in range(first, last + 1))


def wrong_in_ranges(every: Sequence[Ranges]) -> str:
    """What is wrong with the slots of all members together, which must be each slot once; empty when nothing is."""
    stretches = sorted(stretch for ranges in every for stretch in ranges)
    behind = 0
    for first, last in stretches:
        if first != behind or last < first:
            return f"slots {first} to {last} do not follow slot {behind - 1}"
        behind = last + 1
    return "" if behind == SLOTS else f"slots from {behind} on are missing"
