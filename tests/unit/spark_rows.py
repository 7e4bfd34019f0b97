"""Rows as Spark hands them to a sink: Arrow batches with the columns that the rows of a test name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

TYPES: Final = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.string(),
    "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    "partition": pa.int32(),
    "queue": pa.string(),
}


def arrow(rows: Sequence[Mapping[str, Any]], *names: str, **types: pa.DataType) -> pa.RecordBatch:
    """The columns of these names, None where a row has nothing."""
    kinds = {**TYPES, **types}
    fields = [pa.field(name, kinds[name]) for name in names]
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def as_headers(headers: Mapping[str, bytes]) -> list[dict[str, object]]:
    """Headers as a column has them."""
    return [{"key": name, "value": value} for name, value in headers.items()]
