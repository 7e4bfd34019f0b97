"""Finding the batch of a partition that holds a message."""

from __future__ import annotations

from delivery.batch import Batch, open_batch
from delivery.dispatch.scanner import Source


async def batch_of(source: Source, number: int) -> Batch | None:
    """The batch in whose run of ids `number` lies; None when retention has dropped it.

    Raises what reading the partition does, and CorruptRecord.
    """
    chunk = await source.read(number - 1, 1)
    if chunk is None:
        return None
    at = 0
    for header in chunk.headers:
        if header.base_id <= number <= header.last_id:
            return open_batch(chunk.data[at : at + header.length], header)
        at += header.length
    return None
