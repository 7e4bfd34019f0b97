"""The index of a segment: where its batches start, roughly, and, once it is closed, where it ends.

While a segment is written its index lives in memory. When the segment is closed the index becomes a file beside it,
written once and complete. That file is the seal: what the segment holds beyond the end it states does not count.

    body     24 bytes per entry:    base id, offset of the batch, messages before it in the segment
             32 bytes per producer's batch remembered at the close: producer id, sequence, base id, and of four bytes
                          each count and CRC-32C of the payload, 0 where that is not known
    trailer  64 bytes:
             offset size  field
              0     8     magic, b"HooIdx" and the version as two bytes
              8     8     end: bytes of the segment that count
             16     8     last id
             24     8     messages
             32     8     entries
             40     8     producers' batches
             48     8     reserved, 0
             56     4     CRC-32C of the body
             60     4     CRC-32C of bytes 0…59 of the trailer

All numbers are little-endian and signed, the checksums unsigned. There is an entry for the first batch and for the
next one that starts 64 KiB or more after the last entry's.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

from delivery.errors import CorruptRecord
from delivery.storage.base import StoredBatch

STRETCH_BYTES: Final = 64 * 1024
TRAILER_BYTES: Final = 64
_MAGIC: Final = b"HooIdx\x00\x01"
_TRAILER: Final = struct.Struct("<8sqqqqqqI")
_CRC: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<qqq")
_STORED: Final = struct.Struct("<qqqII")


class Extent(NamedTuple):
    """How far a segment goes: its bytes, its highest id, its messages."""

    end: int
    last_id: int
    messages: int


class Trailer(NamedTuple):
    """What the end of an index file says."""

    extent: Extent
    entries: int
    stored: int
    body_crc: int


class Index:
    """The entries of one segment. One thread may add while others look up."""

    __slots__ = ("_before", "_ids", "_offsets")

    def __init__(self, entries: Iterable[tuple[int, int, int]] = ()) -> None:
        self._ids, self._offsets, self._before = array("q"), array("q"), array("q")
        for entry in entries:
            self._add(*entry)

    def note(self, base_id: int, offset: int, before: int) -> None:
        """A batch of `base_id` starts at `offset` with `before` messages before it; keeps it where an entry is due."""
        if not self._offsets or offset - self._offsets[-1] >= STRETCH_BYTES:
            self._add(base_id, offset, before)

    def find(self, message_id: int) -> tuple[int, int]:
        """(offset, messages before) of the last entry whose batch begins at or below `message_id`, or of the start."""
        place = bisect_right(self._ids, message_id) - 1
        return (self._offsets[place], self._before[place]) if place >= 0 else (0, 0)

    def entries(self) -> list[tuple[int, int, int]]:
        """All entries in order."""
        return list(zip(self._ids, self._offsets, self._before, strict=True))

    def _add(self, base_id: int, offset: int, before: int) -> None:
        # The ids go last: a look-up from another thread finds an entry only when the rest of it is there.
        self._offsets.append(offset)
        self._before.append(before)
        self._ids.append(base_id)


def encode(index: Index, stored: Sequence[StoredBatch], extent: Extent) -> bytes:
    """The index file of a segment that is closed at `extent`."""
    entries = index.entries()
    body = b"".join(
        [_ENTRY.pack(*entry) for entry in entries]
        + [_STORED.pack(b.producer_id, b.sequence, b.base_id, b.count, b.crc) for b in stored]
    )
    trailer = _TRAILER.pack(_MAGIC, *extent, len(entries), len(stored), 0, google_crc32c.value(body))
    return body + trailer + _CRC.pack(google_crc32c.value(trailer))


def read_trailer(path: Path) -> Trailer:
    """The trailer of an index file. Raises CorruptRecord, or OSError when the file cannot be read."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - TRAILER_BYTES))
        raw = file.read(TRAILER_BYTES)
    if len(raw) < TRAILER_BYTES or google_crc32c.value(raw[:60]) != _CRC.unpack_from(raw, 60)[0]:
        raise CorruptRecord(f"the end of index {path.name} is damaged or missing")
    magic, end, last_id, messages, entries, stored, _, body_crc = _TRAILER.unpack_from(raw)
    if magic != _MAGIC or size != entries * _ENTRY.size + stored * _STORED.size + TRAILER_BYTES:
        raise CorruptRecord(f"index {path.name} is of an unknown version or was cut")
    return Trailer(Extent(end, last_id, messages), entries, stored, body_crc)


def read_index(path: Path) -> tuple[Index, tuple[StoredBatch, ...]]:
    """The entries and the producers' batches of an index file. Raises CorruptRecord, or OSError."""
    trailer = read_trailer(path)
    body = path.read_bytes()[:-TRAILER_BYTES]
    if google_crc32c.value(body) != trailer.body_crc:
        raise CorruptRecord(f"index {path.name} is damaged")
    split = trailer.entries * _ENTRY.size
    return Index(_ENTRY.iter_unpack(body[:split])), tuple(StoredBatch(*f) for f in _STORED.iter_unpack(body[split:]))
