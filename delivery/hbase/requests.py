"""How what is asked of HBase is put into its requests: rows in pieces, and filters in its own language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

REQUEST_BYTES: Final = 256 * 1024
"""Puts are cut into requests of about this size. A gateway takes 2 MiB in a frame unless it is set up for more, but of
large requests each program on the way waits for the others: these were no quicker, and went one after another.
"""
CELL_OVERHEAD: Final = 64
"""What a cell takes in a request beside its row, column and value."""

Cells = dict[bytes, bytes]
"""Values by column, `family:qualifier`."""
Row = tuple[bytes, Cells]


def in_requests(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows in runs of about REQUEST_BYTES; a larger row stands alone."""
    start = size = 0
    for at, (row, cells) in enumerate(rows):
        here = len(row)
        for column, value in cells.items():
            here += len(column) + len(value) + CELL_OVERHEAD
        if size + here > REQUEST_BYTES and at > start:
            yield rows[start:at]
            start, size = at, 0
        size += here
    if start < len(rows):
        yield rows[start:]


def scan_filter(*, keys_only: bool, but: bytes | None) -> bytes | None:
    """The filter of a scan that leaves out values, and cells whose value begins with `but`; None for all of it."""
    parts = [] if but is None else [b"ValueFilter(!=, %b)" % prefixed(but)]
    parts += [b"KeyOnlyFilter()"] if keys_only else []
    return b" AND ".join(parts) or None


def prefixed(prefix: bytes) -> bytes:
    """What a value that begins with `prefix` is compared with; a quote is written twice."""
    return b"'binaryprefix:" + prefix.replace(b"'", b"''") + b"'"
