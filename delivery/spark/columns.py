"""Record batches as Arrow record batches, with the columns of Spark's Kafka source and the queue.

Columns are built from whole lists; nothing here loops over messages in Python except to open headers that exist.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delivery.batch import Batch
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


def to_arrow(batch: Batch, queue: str, columns: Sequence[str], after: int, until: int) -> pa.RecordBatch:
    """These columns of the messages of `batch` with an id above `after` and up to `until`."""
    offsets = _int64(array("q", batch.ids()))
    parts = batch.columns()
    makers: dict[str, Callable[[], Any]] = {
        "key": lambda: pa.array(parts.keys, pa.binary()),
        "value": lambda: pa.array(parts.bodies, pa.binary()),
        "topic": lambda: pa.array(parts.topics, pa.string()),
        "partition": lambda: _same(batch.header.partition, "partition", len(offsets)),
        "offset": lambda: offsets,
        "timestamp": lambda: pc.multiply(pc.shift_right(offsets, 15), 1000).cast(_TIME),
        "timestampType": lambda: _same(0, "timestampType", len(offsets)),
        "headers": lambda: pa.array([_headers(block) for block in parts.blocks], _HEADERS),
        "queue": lambda: _same(queue, "queue", len(offsets)),
    }
    schema = pa.schema([pa.field(name, _TYPES[name][0]) for name in columns])
    rows = pa.RecordBatch.from_arrays([makers[name]() for name in columns], schema=schema)
    if after < batch.header.base_id and batch.header.last_id <= until:
        return rows
    return rows.filter(pc.and_(pc.greater(offsets, after), pc.less_equal(offsets, until)))


def _same(value: int | str, column: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, _TYPES[column][0]), count)


def _int64(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _headers(block: bytes) -> list[dict[str, object]]:
    if not block:
        return []
    return [{"key": name, "value": value} for name, value in tolerant_headers(block).items()]
