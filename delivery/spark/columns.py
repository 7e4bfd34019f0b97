"""Record batches as Arrow record batches, with the columns of Spark's Kafka source and the queue.

Columns are Arrow's views of the batches' own bytes; nothing here loops over messages in Python but to open headers that
exist.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delivery.batch import Batch
from delivery.batch.arrow import binary_of, ids_of, topics_of
from delivery.model import tolerant_headers

_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[dict[str, tuple[pa.DataType, str]]] = {
    "key": (pa.binary(), "BINARY"),
    "value": (pa.binary(), "BINARY"),
    "topic": (pa.string(), "STRING"),
    "partition": (pa.int32(), "INT"),
    "offset": (pa.int64(), "BIGINT"),
    "timestamp": (_TIME, "TIMESTAMP"),
    "timestampType": (pa.int32(), "INT"),
    "headers": (_HEADERS, "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    "queue": (pa.string(), "STRING"),
}
"""What a read gives. `offset` is the message id as a number; `timestamp` its time, and `timestampType` always 0."""

COLUMNS: Final = tuple(_TYPES)


def ddl(columns: Sequence[str]) -> str:
    """The columns, as Spark writes schemas."""
    return ", ".join(f"{name} {_TYPES[name][1]}" for name in columns)


def to_arrow(batches: Sequence[Batch], queue: str, columns: Sequence[str], after: int, until: int) -> pa.RecordBatch:
    """These columns of the messages with an id above `after` and up to `until`.

    `batches` are of one partition, at least one, in order.
    """
    offsets = _joined(map(ids_of, batches))
    count, partition = len(offsets), batches[0].header.partition
    makers: dict[str, Callable[[], Any]] = {
        "key": lambda: _joined(map(_keys, batches)),
        "value": lambda: _joined(binary_of(one.stored_bodies()) for one in batches),
        "topic": lambda: _joined(map(topics_of, batches)),
        "partition": lambda: _same(partition, "partition", count),
        "offset": lambda: offsets,
        "timestamp": lambda: pc.multiply(pc.shift_right(offsets, 15), 1000).cast(_TIME),
        "timestampType": lambda: _same(0, "timestampType", count),
        "headers": lambda: _joined(map(_headers, batches)),
        "queue": lambda: _same(queue, "queue", count),
    }
    schema = pa.schema([pa.field(name, _TYPES[name][0]) for name in columns])
    rows = pa.RecordBatch.from_arrays([makers[name]() for name in columns], schema=schema)
    numbers = memoryview(offsets.buffers()[1]).cast("q")
    first, end = bisect_right(numbers, after, 0, count), bisect_right(numbers, until, 0, count)
    return rows if (first, end) == (0, count) else rows.slice(first, max(0, end - first))


def _joined(parts: Iterable[pa.Array]) -> pa.Array:
    found = list(parts)
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def _same(value: int | str, column: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, _TYPES[column][0]), count)


def _keys(batch: Batch) -> pa.Array:
    stored = batch.stored_keys()
    return pa.nulls(batch.header.count, pa.binary()) if stored is None else binary_of(stored)


def _headers(batch: Batch) -> pa.Array:
    names, values = list[str](), list[bytes]()
    if batch.stored_blocks() is None:
        ends = pa.py_buffer(bytes(4 * (batch.header.count + 1)))
    else:
        counts = array("i", [0])
        for block in batch.blocks():
            if block:
                headers = tolerant_headers(block)
                names += headers
                values += headers.values()
            counts.append(len(names))
        ends = pa.py_buffer(counts)
    each = pa.StructArray.from_arrays([pa.array(names, pa.string()), pa.array(values, pa.binary())], ["key", "value"])
    return pa.Array.from_buffers(_HEADERS, batch.header.count, [None, ends], children=[each])
