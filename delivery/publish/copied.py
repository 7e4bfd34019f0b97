"""Storing what another queue has stored, under the ids that it has there."""

from __future__ import annotations

from delivery.batch import headers_in
from delivery.errors import CorruptRecord
from delivery.publish.publisher import Publisher


async def store_copied(
    publisher: Publisher, queue: str, partition: int, after: int, batches: bytes, generation: str
) -> int:
    """Store whole batches, one after another, behind the id `after`; the last id that is stored then.

    Each one names the one before it as what it follows, so none is stored behind a hole, and none twice: whoever does
    not know what became of some goes on behind the last id that is there.

    Raises what the first that failed was refused with (see `PartitionWriter.take`), UnknownOutcome, and CorruptRecord
    where the bytes are no whole batches; others may be stored then.
    """
    begun, end = [], 0
    for at, header in headers_in(batches):
        end = at + header.length
        begun.append(publisher.begin(queue, partition, batches[at:end], generation=generation, after=after))
        after = header.last_id
    if end < len(batches):
        raise CorruptRecord(f"{len(batches) - end} bytes are no whole batch")
    for pending in begun:
        await pending.wait()
    return after
