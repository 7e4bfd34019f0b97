"""Lanes and batches for the tests of a publisher's sequences."""

from __future__ import annotations

import itertools

from delivery.batch import Row, open_batch
from delivery.client.inflight import Entry, Lane
from delivery.client.receipts import Batch

SECONDS = 30.0


def batch(name: int, deadline: float = SECONDS) -> Batch:
    made = Batch(0, 0.0, deadline)
    made.rows.append((str(name).encode(), None, "", b""))
    return made


def rows_of(batch: Batch) -> list[Row]:
    """What the batch will carry, as its readers will see it."""
    columns = open_batch(batch.rows.encode(batch.partition, 0, 0)).columns()
    return list(zip(columns.bodies, columns.keys, columns.topics, columns.blocks, strict=True))


def name_of(of: Batch) -> int:
    return int(rows_of(of)[0][0])


def lane(window: int = 8) -> Lane:
    ids = itertools.count(1)
    return Lane(window, lambda: next(ids))


def launched(of: Lane, now: float = 0.0) -> list[Entry]:
    found = []
    while of.may_send(now) and (entry := of.launch()) is not None:
        found.append(entry)
    return found
