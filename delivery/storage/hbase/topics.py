"""The topics of a batch: what stands beside its head, so that who reads some topics leaves the others where they are.

    offset size  field of the cell `batch:topics`, big-endian
     0     4     CRC-32C of all that follows
     4     4     n, the entries of the dictionary
     …           the batch's dictionary (see delivery/batch/layout.py)
     …     1·m   of each message the entry of its topic, or
     …     2·m   the same where there are more than 256; only in the layout `rows`, and only where n is above 1

A batch for which that takes more than CELL_BYTES_MAX has no such cell, nor has one that an earlier version wrote: it is
read as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import compress
from typing import Final

import google_crc32c

from delivery.batch import Header, open_batch
from delivery.batch.select import Refuses, dictionary_in, topics_in
from delivery.errors import CorruptRecord

CELL_BYTES_MAX: Final = 64 * 1024
"""A page of heads has as many of them as it has heads."""

_BYTE: Final = 256
_START: Final = struct.Struct(">II")


def pack(header: Header, batch: bytes, *, by_message: bool) -> bytes | None:
    """The cell of a batch, None where it would be too large. Raises CorruptRecord."""
    told = [dictionary_in(header, batch)]
    if by_message and header.topic_count > 1:
        index = open_batch(batch, header).topic_index
        told.append(struct.pack(f">{header.count}{_kind(header.topic_count)}", *index))
    cell = b"".join((header.topic_count.to_bytes(4, "big"), *told))
    return None if len(cell) + 4 > CELL_BYTES_MAX else google_crc32c.value(cell).to_bytes(4, "big") + cell


def wanted_of(header: Header, cell: bytes, refuses: Refuses) -> Sequence[int]:
    """The places of the messages of a batch that may be wanted, rising. Raises CorruptRecord."""
    if len(cell) < _START.size or _START.unpack_from(cell)[0] != google_crc32c.value(cell[4:]):
        raise CorruptRecord(f"the checksum of the topics of the batch of {header.base_id} is wrong")
    size, end = _START.unpack_from(cell)[1], _START.size
    for _ in range(size):
        end += 1 + cell[end]
    topics, index = topics_in(cell[_START.size : end]), cell[end:]
    taken = [not refuses(header, bytes((len(topic),)) + topic.encode("ascii")) for topic in topics]
    if not index or not any(taken):
        return range(header.count) if any(taken) else ()
    entries = struct.unpack(f">{header.count}{_kind(size)}", index)
    return list(compress(range(header.count), map(taken.__getitem__, entries)))


def _kind(entries: int) -> str:
    return "B" if entries <= _BYTE else "H"
