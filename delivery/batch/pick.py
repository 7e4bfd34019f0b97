"""Some messages of a batch as a batch of their own, which covers no ids beyond theirs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from delivery.batch.decode import Batch
from delivery.batch.encode import assemble


def pick(batch: Batch, numbers: Collection[int]) -> bytes:
    """The messages of `batch` with these ids; there must be at least one."""
    wanted = frozenset(numbers)
    return pick_places(batch, [place for place, number in enumerate(batch.ids()) if number in wanted])


def pick_places(batch: Batch, places: Sequence[int]) -> bytes:
    """The messages of `batch` at these places, which rise; there must be at least one."""
    ids, header = batch.ids(), batch.header
    first, last = ids[places[0]], ids[places[-1]]
    columns = batch.columns(places)
    columns.positions = [ids[place] - first for place in places] if last - first >= len(places) else None
    return assemble(
        columns, header.partition, base_id=first, epoch=header.epoch, producer_id=header.producer_id,
        producer_sequence=header.producer_sequence, span=last - first + 1,
    )  # fmt: skip
