"""Arrow columns as a record batch, and the opposite: its sections are Arrow's own buffers, and no message is looked at
by itself.

Needs pyarrow, which is an optional part of the installation: to be imported where it is used.
"""

from __future__ import annotations

from array import array

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from delivery.batch import layout
from delivery.batch.decode import Batch, Stored
from delivery.batch.encode import BODIES, Section, join, numbers

Blobs = list[memoryview]


def pack(rows: pa.RecordBatch, partition: int, producer_id: int = 0, producer_sequence: int = 0) -> bytes:
    """The batch of these rows, of which there is at least one. Raises MessageTooLarge above 12 MiB.

    Their columns are `body` and, where there are such, `topic`, `key` and `block`; of these only a key may be missing.
    """
    names = rows.schema.names
    topics, sections = _topics(rows["topic"]) if "topic" in names else ([""], [])
    blobs: Blobs = []
    if "key" in names:
        sections += _keys(rows["key"], blobs)
    if "block" in names and (blocks := data_of(rows["block"])):
        sections.append((layout.HEADERS, _lengths(rows["block"])))
        blobs.append(blocks)
    sections.append((BODIES, _lengths(rows["body"])))
    blobs.append(data_of(rows["body"]))
    header, payload = join(topics, len(rows), partition, sections, blobs)
    header = msgspec.structs.replace(header, producer_id=producer_id, producer_sequence=producer_sequence)
    return header.pack() + payload


def ids_of(batch: Batch) -> pa.Array:
    """The ids as numbers, rising."""
    base = batch.header.base_id
    if batch.positions is None:
        ones = pa.repeat(pa.scalar(1, pa.int64()), batch.header.count)
        return pc.cumulative_sum(ones, start=base - 1)
    return pc.add(_numbers(batch.positions, pa.uint32()).cast(pa.int64()), base)


def topics_of(batch: Batch) -> pa.Array:
    """The topic of each message."""
    if len(batch.topics) == 1:
        return pa.repeat(batch.topics[0], batch.header.count)
    index = batch.topic_index
    places = _numbers(index, pa.uint8()) if isinstance(index, bytes) else _numbers(array("H", index), pa.uint16())
    return pa.array(batch.topics).take(places)


def binary_of(stored: Stored) -> pa.Array:
    """The byte strings where they lie: the batch's bytes are kept as long as the column is."""
    lengths = _numbers(stored.lengths, pa.uint32())
    ends = pc.cumulative_sum(lengths)
    begins = b"".join((bytes(4), values_of(ends, 4)))
    size = ends[-1].as_py()
    data = memoryview(stored.data)[stored.at : stored.at + size]
    validity = None
    if stored.presence is not None:
        validity = _numbers(stored.presence, pa.uint8()).cast(pa.bool_()).buffers()[1]
    buffers = [validity, pa.py_buffer(begins), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def data_of(column: pa.Array) -> memoryview:
    """The bytes of all values, one after another; none of them is missing."""
    _, ends, data = column.buffers()
    if data is None:
        return memoryview(b"")
    offsets = memoryview(ends).cast("i")
    return memoryview(data)[offsets[column.offset] : offsets[column.offset + len(column)]]


def lengths(column: pa.Array) -> pa.Array:
    """How many bytes each value has, 0 where there is none."""
    found = pc.binary_length(column)
    return pc.fill_null(found, 0) if found.null_count else found


def values_of(numbers: pa.Array, width: int) -> memoryview:
    """The bytes of numbers of this width, of which none is missing."""
    at = numbers.offset * width
    return memoryview(numbers.buffers()[1])[at : at + len(numbers) * width]


def _numbers(values: array[int] | bytes, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _topics(column: pa.Array) -> tuple[list[str], list[Section]]:
    encoded = column.dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        return topics, []
    index = values_of(encoded.indices.cast(pa.uint16()), 2)
    return topics, [(layout.TOPICS, numbers("H", bytes(index)))]


def _keys(keys: pa.Array, blobs: Blobs) -> list[Section]:
    sections: list[Section] = []
    if keys.null_count == len(keys):
        return sections
    if keys.null_count:
        sections.append((layout.NULL_KEYS, bytes(values_of(keys.is_valid().cast(pa.uint8()), 1))))
        keys = pc.fill_null(keys, b"")
    blobs.append(data_of(keys))
    return [*sections, (layout.KEYS, _lengths(keys))]


def _lengths(column: pa.Array) -> bytes:
    return numbers("I", bytes(values_of(lengths(column), 4)))
