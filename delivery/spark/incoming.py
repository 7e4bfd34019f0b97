"""Rows that Spark hands over, made into the columns of record batches: whole columns at a time, in Arrow's own loops.

A row's columns are `body`, and where Spark's rows have them `key`, `topic`, `block` (see `model.encode_headers`),
`queue` and `partition`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delivery.batch.arrow import lengths, values_of
from delivery.errors import InvalidRequest, MessageTooLarge
from delivery.messaging.marks import HEADER
from delivery.model import HEADERS_BYTES_MAX, KEY_BYTES_MAX, NAME_MAX, QueueSettings, check_topic

ROW_BYTES: Final = 16
"""What a row takes beyond its own bytes."""

_OF_TRANSACTION: Final = HEADER.encode()


def incoming(rows: pa.RecordBatch, *, queue_given: bool) -> pa.RecordBatch:
    """The rows as columns of batches; with `queue_given` their column `queue` does not count.

    Raises InvalidRequest for a row without a value or a queue, for names of topics and headers that are none, and
    MessageTooLarge for headers over their limit.
    """
    columns = {"body": _filled(rows, "value").cast(pa.binary())}
    names = rows.schema.names
    if "key" in names:
        columns["key"] = rows["key"].cast(pa.binary())
    if "topic" in names:
        columns["topic"] = _topics(rows["topic"])
    if "headers" in names:
        columns["block"] = header_blocks(rows["headers"])
    if "queue" in names and not queue_given:
        columns["queue"] = _filled(rows, "queue")
    if "partition" in names:
        columns["partition"] = rows["partition"]
    return pa.RecordBatch.from_pydict(columns)


def check_sizes(rows: pa.RecordBatch, queue: str, settings: QueueSettings) -> None:
    """Raise MessageTooLarge for a value or a key that the queue does not take."""
    for what, column, limit in (("value", "body", settings.body_bytes_max), ("key", "key", KEY_BYTES_MAX)):
        size = longest(rows[column]) if column in rows.schema.names else 0
        if size > limit:
            raise MessageTooLarge(f"a {what} of {size} bytes; queue {queue!r} takes up to {limit}")


def running_bytes(rows: pa.RecordBatch) -> memoryview:
    """For each row, how many bytes it and those before it take."""
    total: Any = ROW_BYTES
    for name in ("body", "key", "block"):
        if name in rows.schema.names:
            total = pc.add(total, lengths(rows[name]).cast(pa.int64()))
    return values_of(pc.cumulative_sum(total), 8).cast("q")


def grouped(rows: pa.RecordBatch, numbers: pa.Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows under each of the numbers, which rise, in the order in which they came."""
    found = pc.value_counts(numbers)
    if len(found) > 1:
        rows = rows.take(pc.array_sort_indices(numbers))
    at = 0
    for one in sorted(found.to_pylist(), key=lambda each: int(each["values"])):
        yield one["values"], rows.slice(at, one["counts"])
        at += one["counts"]


def header_blocks(headers: pa.Array) -> pa.Array:
    """The header block of each row, empty where it has no headers. What Spark stores is of no transaction."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int32())
    names, values = (part.cast(pa.binary()) for part in headers.flatten().flatten())
    if not len(names):
        return pa.repeat(b"", len(headers))
    if names.null_count or pc.min(lengths(names)).as_py() == 0 or longest(names) > NAME_MAX:
        raise InvalidRequest(f"a header's key is text of 1 to {NAME_MAX} bytes")
    values = pc.fill_null(values, b"")
    size16, size32 = _counted(lengths(names), pa.uint16()), _counted(lengths(values), pa.int32())
    each = pc.binary_join_element_wise(size16, names, size32, values, b"")
    each = pc.if_else(pc.equal(names, _OF_TRANSACTION), b"", each)
    ends = pc.cumulative_sum(counts)
    lists = pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), each)
    blocks = pc.binary_join(lists, b"")
    if longest(blocks) > HEADERS_BYTES_MAX:
        raise MessageTooLarge(f"headers take {longest(blocks)} bytes; the limit is {HEADERS_BYTES_MAX}")
    return blocks


def longest(column: pa.Array) -> int:
    """How many bytes the longest value has."""
    return int(pc.max(lengths(column)).as_py() or 0)


def _counted(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers as their bytes, one byte string each."""
    width = kind.bit_width // 8
    raw = pa.py_buffer(values_of(numbers.cast(kind), width))
    return pa.Array.from_buffers(pa.binary(width), len(numbers), [None, raw]).cast(pa.binary())


def _topics(column: pa.Array) -> pa.Array:
    found = pc.fill_null(column.cast(pa.string()), "")
    for topic in pc.unique(found).to_pylist():
        check_topic(topic)
    return found


def _filled(rows: pa.RecordBatch, name: str) -> pa.Array:
    column = rows[name]
    if column.null_count:
        raise InvalidRequest(f"{column.null_count} of {len(column)} rows have no {name}")
    return column
