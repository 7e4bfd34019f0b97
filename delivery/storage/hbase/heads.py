"""The head of a batch: what HBase holds beside a batch's messages, in the row of the first one.

    offset size  field of the cell `batch:head`, big-endian
     0     8     base id of the partition's batch before this one, 0 for none
     8     8     last id of that batch: the link that shows a hole
    16     8     the watermark when this one was written: all up to there was complete and confirmed
    24     8     messages of the partition before this batch, of all times
    32     8     bytes of batches before it, of all times
    40     8     when HBase may remove the batch by itself, in ms since 1970 by its writer's clock, 0 for never
    48     8     messages of the batch before this one: its last ids
    56     8     when HBase may remove the batch before this one, as above: whether a hole there is one of its making
    64    64     the header of the batch (see delivery/batch/layout.py), with the length and checksum of what is read

Heads are a family of their own, so that walking over them reads no message.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from delivery.batch import HEADER_BYTES, Header, peek
from delivery.errors import CorruptRecord

_FIELDS: Final = struct.Struct(">qqqqqqqq")


class Head(msgspec.Struct, frozen=True, gc=False):
    """One batch of a partition, without its messages."""

    header: Header
    previous_base: int
    previous_last: int
    confirmed: int
    messages_before: int
    bytes_before: int
    expires: int
    previous_shown: int
    previous_expires: int

    def pack(self) -> bytes:
        """The cell."""
        fields = _FIELDS.pack(
            self.previous_base,
            self.previous_last,
            self.confirmed,
            self.messages_before,
            self.bytes_before,
            self.expires,
            self.previous_shown,
            self.previous_expires,
        )
        return fields + self.header.pack()


def unpack(cell: bytes) -> Head:
    """The head in a cell. Raises CorruptRecord."""
    header = peek(cell, _FIELDS.size)
    if header is None or len(cell) != _FIELDS.size + HEADER_BYTES:
        raise CorruptRecord(f"a batch's head has {len(cell)} bytes")
    return Head(header, *_FIELDS.unpack_from(cell))
