"""The head of a batch: what HBase holds beside a batch's messages, in the row of the first one.

    offset size  field of the cell `batch:head`, big-endian
     0     8     base id of the partition's batch before this one, 0 for none
     8     8     last id of that batch: the link that shows a hole
    16     8     the watermark when this one was written: all up to there was complete and confirmed
    24     8     messages of the partition before this batch, of all times
    32     8     bytes of batches before it, of all times
    40     8     1 when HBase removes the batch by itself after its time, else 0
    48     8     messages of the batch before this one: its last ids
    56    64     the header of the batch (see delivery/batch/layout.py), with the length and checksum of what is read

Heads are a family of their own, so that walking over them reads no message.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from delivery.batch import HEADER_BYTES, Header, peek
from delivery.errors import CorruptRecord

_FIELDS: Final = struct.Struct(">qqqqqqq")


class Head(msgspec.Struct, frozen=True, gc=False):
    """One batch of a partition, without its messages."""

    header: Header
    previous_base: int
    previous_last: int
    confirmed: int
    messages_before: int
    bytes_before: int
    expires: bool
    previous_shown: int

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
        )
        return fields + self.header.pack()


def unpack(cell: bytes) -> Head:
    """The head in a cell. Raises CorruptRecord."""
    header = peek(cell, _FIELDS.size)
    if header is None or len(cell) != _FIELDS.size + HEADER_BYTES:
        raise CorruptRecord(f"a batch's head has {len(cell)} bytes")
    base, last, confirmed, messages, size, expires, shown = _FIELDS.unpack_from(cell)
    return Head(header, base, last, confirmed, messages, size, bool(expires), shown)
