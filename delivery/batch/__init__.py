"""The record batch: the unit that is published, stored, cached, pushed and read, as the same bytes everywhere.

`layout` has the fixed header and how batches follow one another in a stream of bytes; `encode` packs messages into a
batch; `decode` opens one into columns or messages; `select` makes the smaller batch that a topic filter leaves.
"""

from __future__ import annotations

from delivery.batch.decode import Batch, open_at, open_batch
from delivery.batch.encode import Row, encode
from delivery.batch.layout import BATCH_BYTES_MAX, BATCH_COUNT_MAX, HEADER_BYTES, Header, headers_in, peek, stamp
from delivery.batch.rows import Rows
from delivery.batch.select import is_aside, select, select_each, without_asides

__all__ = [
    "BATCH_BYTES_MAX",
    "BATCH_COUNT_MAX",
    "HEADER_BYTES",
    "Batch",
    "Header",
    "Row",
    "Rows",
    "encode",
    "headers_in",
    "is_aside",
    "open_at",
    "open_batch",
    "peek",
    "select",
    "select_each",
    "stamp",
    "without_asides",
]
