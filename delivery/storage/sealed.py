"""Which ids each epoch left in a partition."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class EpochIds(msgspec.Struct, frozen=True):
    """The ids that one epoch stored, as far as they are stored still."""

    epoch: int
    first_id: int
    last_id: int


def by_epoch(parts: Iterable[tuple[int, int, int]], before: int) -> tuple[EpochIds, ...]:
    """The ids of each epoch below `before`, from parts (epoch, first id, last id) in the order of their ids."""
    found: list[EpochIds] = []
    for epoch, first_id, last_id in parts:
        if epoch >= before:
            break
        goes_on = found and found[-1].epoch == epoch
        found.append(EpochIds(epoch, found.pop().first_id if goes_on else first_id, last_id))
    return tuple(found)
