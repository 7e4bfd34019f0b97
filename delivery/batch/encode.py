"""Packing messages into a record batch: columns by C loops, no Python per message beyond the row itself."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Final

import google_crc32c
import msgspec

from delivery.batch import layout
from delivery.batch.layout import BATCH_BYTES_MAX, BATCH_COUNT_MAX, HEADER_BYTES, Header
from delivery.errors import InvalidRequest, MessageTooLarge
from delivery.model import ASIDE

Section = tuple[int, bytes]
"""A column of a payload, and the flag that says that it is there."""
BODIES: Final = 0
"""Under which the lengths of the bodies stand, which are always there."""

Row = tuple[bytes, bytes | None, str, bytes]
"""A message before it has an id: body, key or None, topic, header block."""


def encode(
    rows: Sequence[Row], partition: int, producer_id: int = 0, producer_sequence: int = 0, span: int | None = None
) -> bytes:
    """The batch of `rows`, not yet stamped: base id and epoch are 0. It covers an id for each, or so many as `span`.

    The rows are expected to be within their limits (names, sizes); what is checked is what the format cannot hold.
    Raises InvalidRequest for no rows or too many, MessageTooLarge when the batch is larger than 12 MiB.
    """
    if not 1 <= len(rows) <= BATCH_COUNT_MAX:
        raise InvalidRequest(f"a batch holds 1 to {BATCH_COUNT_MAX} messages, not {len(rows)}")
    bodies, keys, topics, blocks = zip(*rows, strict=True)
    columns = Columns(topics, keys, blocks, bodies)
    return assemble(columns, partition, producer_id=producer_id, producer_sequence=producer_sequence, span=span)


class Columns:
    """The columns of a batch as sequences of equal length; `positions` only where the ids have gaps."""

    __slots__ = ("blocks", "bodies", "keys", "positions", "topics")

    def __init__(
        self,
        topics: Sequence[str],
        keys: Sequence[bytes | None],
        blocks: Sequence[bytes],
        bodies: Sequence[bytes],
        positions: Sequence[int] | None = None,
    ) -> None:
        self.topics, self.keys, self.blocks, self.bodies = topics, keys, blocks, bodies
        self.positions = positions


def assemble(
    columns: Columns,
    partition: int,
    *,
    base_id: int = 0,
    epoch: int = 0,
    producer_id: int = 0,
    producer_sequence: int = 0,
    span: int | None = None,
) -> bytes:
    """The batch with these columns and header fields. Raises MessageTooLarge above 12 MiB."""
    count = len(columns.bodies)
    dictionary = list(dict.fromkeys(columns.topics))
    sections = _topic_column(columns.topics, dictionary)
    if columns.positions is not None:
        sections.append((layout.SPARSE, numbers("I", columns.positions)))
    blobs: list[bytes] = []
    sections += _key_columns(columns.keys, blobs)
    if any(columns.blocks):
        sections.append((layout.HEADERS, numbers("I", map(len, columns.blocks))))
        blobs += columns.blocks
    sections.append((BODIES, numbers("I", map(len, columns.bodies))))
    header, payload = join(dictionary, count, partition, sections, (*blobs, *columns.bodies))
    header = msgspec.structs.replace(
        header, base_id=base_id, epoch=epoch, producer_id=producer_id, producer_sequence=producer_sequence,
        span=count if span is None else span,
    )  # fmt: skip
    return header.pack() + payload


def assemble_plain(
    topic: str, bodies: Sequence[bytes], partition: int, producer_id: int = 0, producer_sequence: int = 0
) -> bytes:
    """The batch of messages under one topic without keys and headers. Raises MessageTooLarge above 12 MiB."""
    payload = b"".join((_dictionary([topic]), numbers("I", map(len, bodies)), *bodies))
    header = _header(BODIES, [topic], len(bodies), partition, payload, (producer_id, producer_sequence))
    return header.pack() + payload


def join(
    topics: Sequence[str], count: int, partition: int, sections: Sequence[Section], blobs: Iterable[bytes | memoryview]
) -> tuple[Header, bytes]:
    """The payload made of these parts, and its header without producer and stamps.

    `topics` is the dictionary; `sections` come in the order of the layout, the lengths of the bodies under BODIES at
    their end; `blobs` are the keys, the header blocks and the bodies. Raises MessageTooLarge above 12 MiB.
    """
    payload = b"".join((_dictionary(topics), *(section for _, section in sections), *blobs))
    flags = reduce(or_, (flag for flag, _ in sections))
    return _header(flags, topics, count, partition, payload), payload


def _dictionary(topics: Sequence[str]) -> bytes:
    return b"".join([bytes((len(name),)) + name.encode("ascii") for name in topics])


def _header(
    flags: int, topics: Sequence[str], count: int, partition: int, payload: bytes, producer: tuple[int, int] = (0, 0)
) -> Header:  # fmt: skip
    length = HEADER_BYTES + len(payload)
    if length > BATCH_BYTES_MAX:
        raise MessageTooLarge(f"a batch of {length} bytes is over the limit of {BATCH_BYTES_MAX}")
    if len(topics) == 1 and topics[0].startswith(ASIDE):
        flags |= layout.OWN
    crc = google_crc32c.value(payload)
    return Header(flags, len(topics), length, count, 0, 0, *producer, partition, count, crc)


def numbers(kind: str, values: Iterable[int]) -> bytes:
    """A column of numbers. Bytes are taken for the numbers' own, as this machine has them."""
    column = array(kind, values)
    if sys.byteorder == "big":  # pragma: no cover - no such machine in CI
        column.byteswap()
    return column.tobytes()


def _topic_column(topics: Sequence[str], dictionary: list[str]) -> list[Section]:
    if len(dictionary) == 1:
        return []
    if len(dictionary) >= BATCH_COUNT_MAX:
        raise InvalidRequest(f"a batch holds at most {BATCH_COUNT_MAX - 1} different topics")
    index = {name: number for number, name in enumerate(dictionary)}
    return [(layout.TOPICS, numbers("H", map(index.__getitem__, topics)))]


def _key_columns(keys: Sequence[bytes | None], blobs: list[bytes]) -> list[Section]:
    nulls = keys.count(None)
    if nulls == len(keys):
        return []
    sections = [(layout.NULL_KEYS, bytes(key is not None for key in keys))] if nulls else []
    present = [key or b"" for key in keys]
    blobs += present
    return [*sections, (layout.KEYS, numbers("I", map(len, present)))]
