"""The byte layout of a record batch, and reading batches one after another from a stream of bytes.

All numbers are little-endian. A batch is a header of 64 bytes and a payload:

    offset size  field
     0     4     magic, b"HooB"
     4     1     version, 1
     5     1     flags, see below; unknown bits are refused
     6     2     topic count, 1…65535: entries of the topic dictionary
     8     4     length of the whole batch, header included
    12     4     count of messages, 1…65536
    16     8     base id: the number of the first id                              (stamped by the owner)
    24     8     epoch of the owner that stored the batch                         (stamped by the owner)
    32     8     producer id, 0 for none
    40     8     producer sequence: rises by 1 per batch of a producer and partition (see sequences)
    48     2     partition
    50     2     reserved, 0
    52     4     span: the batch covers ids base … base + span − 1; equals count, but for SPARSE and OWN
    56     4     CRC-32C of the payload                                           (written by the publisher)
    60     4     CRC-32C of bytes 0…59                                            (rewritten when stamped)

    payload, each part present only if its flag says so:
           topic dictionary: per entry a length byte and that many ASCII bytes
           TOPICS (1)      u16[count]  index into the dictionary; without the flag every message has entry 0
           SPARSE (2)      u32[count]  place of each message in the id run, rising; without it 0, 1, 2 …
           NULL_KEYS (8)   u8[count]   1 where the message has a key
           KEYS (4)        u32[count]  key lengths (0 where there is none)
           HEADERS (16)    u32[count]  lengths of the header blocks (see model.encode_headers)
                           u32[count]  body lengths
           the keys, the header blocks and the bodies, each one after another

OWN (32) is for batches of the engine's own, whose one topic begins with `hoot.`: no reader gets their messages, and
none are counted. They may keep ids behind these for others, which are.

Two checksums, so that the owner can stamp the header without touching the payload: the payload's travels from the
publisher to the subscriber unchanged. Lengths are stored, not offsets: equal lengths are seen at once and split fast.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import google_crc32c
import msgspec

from delivery.errors import CorruptRecord

MAGIC: Final = b"HooB"
VERSION: Final = 1
HEADER_BYTES: Final = 64
FLAGS_AT: Final = 5
BATCH_BYTES_MAX: Final = 12 * 1024 * 1024
"""Larger batches are refused everywhere; it holds the largest body, its key and its headers."""
BATCH_COUNT_MAX: Final = 65536

TOPICS: Final = 1
SPARSE: Final = 2
KEYS: Final = 4
NULL_KEYS: Final = 8
HEADERS: Final = 16
OWN: Final = 32
KNOWN_FLAGS: Final = TOPICS | SPARSE | KEYS | NULL_KEYS | HEADERS | OWN

_FIELDS: Final = struct.Struct("<4sBBHIIqqqqHHII")
_CRC: Final = struct.Struct("<I")
_OWNER_FIELDS: Final = struct.Struct("<qq")
_OWNER_AT: Final = 16


class Header(msgspec.Struct, frozen=True, gc=False):
    """The fixed header of one batch, checked."""

    flags: int
    topic_count: int
    length: int
    count: int
    base_id: int
    epoch: int
    producer_id: int
    producer_sequence: int
    partition: int
    span: int
    payload_crc: int

    @property
    def last_id(self) -> int:
        """The last id that the batch covers."""
        return self.base_id + self.span - 1

    @property
    def shown(self) -> int:
        """How many of the ids that it covers count as messages: always its last ones."""
        return self.span - self.count if self.flags & OWN else self.span

    def shown_up_to(self, message_id: int) -> int:
        """How many of these are not above an id."""
        return self.shown - min(self.shown, max(0, self.last_id - message_id))

    def length_up_to(self, message_id: int) -> int:
        """How many of its bytes its ids up to one take, as if each took as many; for ids below its end."""
        return self.length * max(0, message_id - self.base_id + 1) // self.span

    def pack(self) -> bytes:
        """The 64 bytes, checksum included."""
        fields = _FIELDS.pack(
            MAGIC, VERSION, self.flags, self.topic_count, self.length, self.count, self.base_id, self.epoch,
            self.producer_id, self.producer_sequence, self.partition, 0, self.span, self.payload_crc,
        )  # fmt: skip
        return fields + _CRC.pack(google_crc32c.value(fields))


def peek(data: bytes | memoryview, at: int = 0) -> Header | None:
    """The header at `at`, or None when fewer than 64 bytes are there.

    Raises CorruptRecord when the bytes are no batch header. Says nothing of whether the payload is there yet.
    """
    raw = bytes(data[at : at + HEADER_BYTES])
    if len(raw) < HEADER_BYTES:
        return None
    magic, version, flags, topics, length, count, base, epoch, producer, sequence, partition, zero, span, crc = (
        _FIELDS.unpack_from(raw)
    )
    if magic != MAGIC:
        raise CorruptRecord("no record batch starts here")
    if google_crc32c.value(raw[:60]) != _CRC.unpack_from(raw, 60)[0]:
        raise CorruptRecord("the checksum of a batch header is wrong")
    if version != VERSION or flags & ~KNOWN_FLAGS or zero:
        raise CorruptRecord(f"a batch of version {version}, flags {flags:#x} is not known to this software")
    if not (HEADER_BYTES < length <= BATCH_BYTES_MAX and 1 <= count <= BATCH_COUNT_MAX and topics >= 1):
        raise CorruptRecord(f"a batch header claims {count} messages in {length} bytes")
    if base < 0 or epoch < 0 or producer < 0 or sequence < 0 or not count <= span <= 2**31:
        raise CorruptRecord("a batch header holds a negative or impossible number")
    return Header(flags, topics, length, count, base, epoch, producer, sequence, partition, span, crc)


def check_payload(header: Header, batch: bytes) -> None:
    """Raise CorruptRecord unless `batch` has the header's length and its payload the header's checksum."""
    if len(batch) != header.length:
        raise CorruptRecord(f"a batch of {header.length} bytes was cut to {len(batch)}")
    check_checksum(header, batch[HEADER_BYTES:])


def check_checksum(header: Header, payload: bytes) -> None:
    """Raise CorruptRecord unless a batch's payload has the header's checksum."""
    if google_crc32c.value(payload) != header.payload_crc:
        raise CorruptRecord("the checksum of a batch payload is wrong")


def stamp(header: Header, batch: bytes, base_id: int, epoch: int) -> tuple[Header, bytes]:
    """The batch with the owner's fields set; the payload is copied as it is, once."""
    stamped = msgspec.structs.replace(header, base_id=base_id, epoch=epoch)
    return stamped, b"".join((stamped.pack(), memoryview(batch)[HEADER_BYTES:]))


def headers_in(chunk: bytes | memoryview) -> Iterator[tuple[int, Header]]:
    """(offset, header) of each whole batch in `chunk`; what follows the last whole one is left alone.

    Raises CorruptRecord where a batch should start and none does. Payload checksums are not looked at.
    """
    at, end = 0, len(chunk)
    while (header := peek(chunk, at)) is not None and at + header.length <= end:
        yield at, header
        at += header.length
