"""The options of a write, and the columns that it takes. Plain, but for Spark's names of types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import uuid4

import msgspec
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from delivery.errors import InvalidRequest
from delivery.model import check_name, near_names
from delivery.spark.columns import COLUMNS
from delivery.spark.options import known_options, zookeeper_of

_NAMES: Final = ("queue", "zookeeper", "writeId", "rowsPerSecond")
_SPARKS_OWN: Final = ("path", "checkpointlocation")
"""Which `save()` and `start()` may add."""

RATE_MAX: Final = 1e9
"""Rows a second; far above what a task can store."""

_TEXT: Final = "string"
_BYTES: Final = "string or binary"
_TYPES: Final = {
    "value": _BYTES, "key": _BYTES, "topic": _TEXT, "headers": "array<struct<key: string, value: binary>>",
    "partition": "int", "queue": _TEXT,
}  # fmt: skip
"""The columns that are written; those others that a read gives are a host's to choose, and count for nothing."""


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a write, checked."""

    zookeeper: str
    queue: str = ""
    """"" when each row names its own."""
    write_id: str = ""
    """Of a batch: what makes a repeated job the same."""
    rate: float = 0.0
    """Rows a second that each task of a batch stores at most; 0 for as many as it can."""


def write_options(given: Mapping[str, str], schema: StructType, *, overwrite: bool, stream: bool) -> WriteOptions:
    """Raises InvalidRequest naming what is wrong with the options or the columns."""
    options = known_options("sink", given, _NAMES, _SPARKS_OWN)
    if overwrite:
        raise InvalidRequest('a queue cannot be overwritten; .mode("append") adds to it')
    if stream and "writeid" in options:
        raise InvalidRequest("writeId is for batches: a stream is known by its checkpoint")
    if stream and "rowspersecond" in options:
        raise InvalidRequest("rowsPerSecond is for batches: a stream has the pace of its source")
    if options.get("writeid") == "":
        raise InvalidRequest("writeId is empty; it is a text that no other write has")
    queue = options.get("queue", "")
    if "queue" in options:
        check_name("queue", queue)
    check_columns(schema, queue_given=bool(queue))
    return WriteOptions(zookeeper_of(options), queue, options.get("writeid", uuid4().hex), _rate(options))


def _rate(options: Mapping[str, str]) -> float:
    text = options.get("rowspersecond")
    if text is None:
        return 0.0
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= RATE_MAX:
        raise InvalidRequest(f"rowsPerSecond must be a number above 0, not {text[:40]!r}")
    return rate


def check_columns(schema: StructType, *, queue_given: bool) -> None:
    """Raise InvalidRequest unless the rows can be messages."""
    for field in schema.fields:
        if field.name in _TYPES:
            if not _fits(field):
                there = field.dataType.simpleString()
                raise InvalidRequest(f"column {field.name} is {there}; it must be {_TYPES[field.name]}")
        elif field.name not in COLUMNS:
            near = near_names(field.name, _TYPES)[:1]
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(_TYPES)}"
            raise InvalidRequest(f"the hoot sink has no column {field.name!r}; {hint}")
    if "value" not in schema.names:
        raise InvalidRequest(f"there is no column value ({_BYTES}), which is the body of the messages")
    if not queue_given and "queue" not in schema.names:
        raise InvalidRequest('the hoot sink needs the name of a queue: .option("queue", …) or a column queue')


def _fits(field: StructField) -> bool:
    kind = field.dataType
    if field.name in {"value", "key"}:
        return _bytes(kind)
    if field.name == "partition":
        return isinstance(kind, IntegerType)
    if field.name == "headers":
        if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
            return False
        parts = kind.elementType
        named = parts.names == ["key", "value"] and isinstance(parts["key"].dataType, StringType)
        return named and _bytes(parts["value"].dataType)
    return isinstance(kind, StringType)


def _bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)
