"""Rows at a pace: cut into pieces by their number alone, each due at its time. Plain.

The pieces are the same however fast the task is, and whatever Arrow batches the rows come in, so that a task that runs
again stores the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

PIECE_SECONDS: Final = 0.2
"""So much of the pace is a piece, if that is at least one row."""


class Piece(msgspec.Struct, frozen=True):
    """Some of the rows."""

    rows: list[pa.RecordBatch]
    number: int
    """Of the piece, from 0 on."""
    due: float
    """Seconds after the first piece."""


def paced(rows: Iterable[pa.RecordBatch], rate: float) -> Iterator[Piece]:
    """The rows in pieces, at `rate` rows a second."""
    size = max(1, round(rate * PIECE_SECONDS))
    held: list[pa.RecordBatch] = []
    count = number = 0
    for batch in rows:
        at = 0
        while len(batch) - at >= size - count:
            held.append(batch.slice(at, size - count))
            at += size - count
            yield Piece(held, number, number * size / rate)
            held, count, number = [], 0, number + 1
        if at < len(batch):
            held.append(batch.slice(at))
            count += len(batch) - at
    if held:
        yield Piece(held, number, number * size / rate)
