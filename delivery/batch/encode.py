"""Packing messages into a record batch: columns by C loops, no Python per message beyond the row itself."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence

import google_crc32c
import msgspec

from delivery.batch import layout
from delivery.batch.layout import BATCH_BYTES_MAX, BATCH_COUNT_MAX, HEADER_BYTES, Header
from delivery.errors import InvalidRequest, MessageTooLarge

Row = tuple[bytes, bytes | None, str, bytes]
"""A message before it has an id: body, key or None, topic, header block."""


def encode(rows: Sequence[Row], partition: int, producer_id: int = 0, producer_sequence: int = 0) -> bytes:
    """The batch of `rows`, not yet stamped: base id and epoch are 0.

    The rows are expected to be within their limits (names, sizes); what is checked is what the format cannot hold.
    Raises InvalidRequest for no rows or too many, MessageTooLarge when the batch is larger than 12 MiB.
    """
    if not 1 <= len(rows) <= BATCH_COUNT_MAX:
        raise InvalidRequest(f"a batch holds 1 to {BATCH_COUNT_MAX} messages, not {len(rows)}")
    bodies, keys, topics, blocks = zip(*rows, strict=True)
    columns = Columns(topics, keys, blocks, bodies)
    return assemble(columns, partition, producer_id=producer_id, producer_sequence=producer_sequence)


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
    parts = [b"".join(bytes((len(name),)) + name.encode("ascii") for name in dictionary)]
    flags = _topic_column(columns.topics, dictionary, parts)
    if columns.positions is not None:
        flags |= layout.SPARSE
        parts.append(_numbers("I", columns.positions))
    blobs: list[bytes] = []
    flags |= _key_columns(columns.keys, parts, blobs)
    if any(columns.blocks):
        flags |= layout.HEADERS
        parts.append(_numbers("I", map(len, columns.blocks)))
        blobs += columns.blocks
    parts.append(_numbers("I", map(len, columns.bodies)))
    payload = b"".join((*parts, *blobs, *columns.bodies))
    header = _header(flags, len(dictionary), count, partition, payload)
    header = msgspec.structs.replace(
        header, base_id=base_id, epoch=epoch, producer_id=producer_id, producer_sequence=producer_sequence,
        span=count if span is None else span,
    )  # fmt: skip
    return header.pack() + payload


def assemble_plain(
    topic: str, bodies: Sequence[bytes], partition: int, producer_id: int = 0, producer_sequence: int = 0
) -> bytes:
    """The batch of messages under one topic without keys and headers. Raises MessageTooLarge above 12 MiB."""
    name = topic.encode("ascii")
    payload = b"".join((bytes((len(name),)), name, _numbers("I", map(len, bodies)), *bodies))
    header = _header(0, 1, len(bodies), partition, payload)
    header = msgspec.structs.replace(header, producer_id=producer_id, producer_sequence=producer_sequence)
    return header.pack() + payload


def _header(flags: int, topics: int, count: int, partition: int, payload: bytes) -> Header:
    """A header without producer and stamps."""
    length = HEADER_BYTES + len(payload)
    if length > BATCH_BYTES_MAX:
        raise MessageTooLarge(f"a batch of {length} bytes is over the limit of {BATCH_BYTES_MAX}")
    return Header(flags, topics, length, count, 0, 0, 0, 0, partition, count, google_crc32c.value(payload))


def _topic_column(topics: Sequence[str], dictionary: list[str], parts: list[bytes]) -> int:
    if len(dictionary) == 1:
        return 0
    if len(dictionary) >= BATCH_COUNT_MAX:
        raise InvalidRequest(f"a batch holds at most {BATCH_COUNT_MAX - 1} different topics")
    index = {name: number for number, name in enumerate(dictionary)}
    parts.append(_numbers("H", map(index.__getitem__, topics)))
    return layout.TOPICS


def _key_columns(keys: Sequence[bytes | None], parts: list[bytes], blobs: list[bytes]) -> int:
    nulls = keys.count(None)
    if nulls == len(keys):
        return 0
    flags = layout.KEYS
    if nulls:
        flags |= layout.NULL_KEYS
        parts.append(bytes(key is not None for key in keys))
    present = [key or b"" for key in keys]
    parts.append(_numbers("I", map(len, present)))
    blobs += present
    return flags


def _numbers(kind: str, values: Iterable[int]) -> bytes:
    column = array(kind, values)
    if sys.byteorder == "big":  # pragma: no cover - no such machine in CI
        column.byteswap()
    return column.tobytes()
