"""Some messages of a batch as a batch of their own, which covers no ids beyond theirs."""

from __future__ import annotations

from collections.abc import Collection

from delivery.batch.decode import Batch
from delivery.batch.encode import Columns, assemble


def pick(batch: Batch, numbers: Collection[int]) -> bytes:
    """The messages of `batch` with these ids; there must be at least one."""
    columns, ids, header = batch.columns(), batch.ids(), batch.header
    wanted = frozenset(numbers)
    at = [place for place, number in enumerate(ids) if number in wanted]
    first, last = ids[at[0]], ids[at[-1]]
    kept = Columns(
        [columns.topics[place] for place in at],
        [columns.keys[place] for place in at],
        [columns.blocks[place] for place in at],
        [columns.bodies[place] for place in at],
        [ids[place] - first for place in at] if last - first >= len(at) else None,
    )
    return assemble(
        kept, header.partition, base_id=first, epoch=header.epoch, producer_id=header.producer_id,
        producer_sequence=header.producer_sequence, span=last - first + 1,
    )  # fmt: skip
