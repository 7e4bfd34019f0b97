"""Record batches as Arrow record batches, with the columns of Spark's Kafka source.

Columns are built from whole lists; nothing here loops over messages in Python except to open headers that exist.
"""

from __future__ import annotations

from array import array

import pyarrow as pa
import pyarrow.compute as pc

from delivery.batch import Batch
from delivery.model import tolerant_headers

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("headers", HEADERS_TYPE),
    ]
)
"""What a read gives. `offset` is the message id as a number; `timestamp` is the id's time."""


def to_arrow(batch: Batch, after: int, until: int) -> pa.RecordBatch:
    """The messages of `batch` with an id above `after` and up to `until`."""
    columns = batch.columns()
    offsets = _int64(array("q", batch.ids()))
    count = len(columns.bodies)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(columns.keys, pa.binary()),
            pa.array(columns.bodies, pa.binary()),
            pa.array(columns.topics, pa.string()),
            pa.repeat(pa.scalar(batch.header.partition, pa.int32()), count),
            offsets,
            pc.multiply(pc.shift_right(offsets, 15), 1000).cast(pa.timestamp("us", tz="UTC")),
            pa.array([_headers(block) for block in columns.blocks], HEADERS_TYPE),
        ],
        schema=SCHEMA,
    )
    if after < batch.header.base_id and batch.header.last_id <= until:
        return rows
    return rows.filter(pc.and_(pc.greater(offsets, after), pc.less_equal(offsets, until)))


def _int64(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _headers(block: bytes) -> list[dict[str, object]]:
    if not block:
        return []
    return [{"key": name, "value": value} for name, value in tolerant_headers(block).items()]
