"""The part of a batch that a topic filter leaves: a sparse batch with the same ids, epoch and span."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import compress

from delivery.batch.decode import Batch, open_batch
from delivery.batch.encode import Columns, assemble
from delivery.batch.layout import HEADER_BYTES, Header


def select(header: Header, data: bytes, topics: AbstractSet[str]) -> bytes | None:
    """The messages of the batch whose topic is in `topics`: `data` itself if all are, None if none is.

    The dictionary at the front decides for most batches; only a batch with both kinds is opened and packed anew.
    """
    present = _dictionary(header, data)
    if present.isdisjoint(topics):
        return None
    if present <= topics:
        return data
    return _repack(open_batch(data), topics)


def _dictionary(header: Header, data: bytes) -> set[str]:
    found, at = set(), HEADER_BYTES
    for _ in range(header.topic_count):
        end = at + 1 + data[at]
        found.add(data[at + 1 : end].decode("ascii"))
        at = end
    return found


def _repack(batch: Batch, topics: AbstractSet[str]) -> bytes:
    columns, header = batch.columns(), batch.header
    wanted = [topic in topics for topic in columns.topics]
    places = columns.positions if columns.positions is not None else range(header.count)
    kept = Columns(
        tuple(compress(columns.topics, wanted)),
        tuple(compress(columns.keys, wanted)),
        tuple(compress(columns.blocks, wanted)),
        tuple(compress(columns.bodies, wanted)),
        tuple(compress(places, wanted)),
    )
    return assemble(
        kept, header.partition, base_id=header.base_id, epoch=header.epoch, producer_id=header.producer_id,
        producer_sequence=header.producer_sequence, span=header.span,
    )  # fmt: skip
