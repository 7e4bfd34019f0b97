"""Mistakes to plant in the store in HBase: in what it looks at after a write, and in what it takes for stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

from delivery.batch import Header
from delivery.storage.hbase import held, opening, records
from delivery.storage.hbase.heads import Head
from delivery.storage.hbase.partition import Partition


def _owner_not_looked_at() -> Any:
    """What was put is acknowledged, whoever owns the partition by then."""
    confirm = Partition.confirm

    def believing(partition: Partition, _: bytes | None) -> int:
        return confirm(partition, records.encode(partition.owner))

    return mock.patch.object(Partition, "confirm", believing)


def _holes_passed_over() -> Any:
    """A batch counts whether the one before it arrived or not."""

    def follow(last_id: int, epoch: int, heads: Iterable[Head]) -> Iterator[Head]:
        return (head for head in heads if head.header.epoch == epoch and head.header.base_id > last_id)

    return mock.patch.object(opening, "follow", follow)


def _parts_taken_for_whole() -> Any:
    """A batch counts when its first row is there."""

    def whole(place: Any, _: str, before: records.Checkpoint) -> list[Head]:
        last_id = before.held.last_id
        return list(held.follow(last_id, before.epoch, place.walk(last_id + 1)))

    return mock.patch.object(opening, "_whole", whole)


def _late_rows_count() -> Any:
    """What an owner of before wrote counts, also what came after the seal, as long as its id is not above the last."""

    def counts(mine: held.Held, header: Header) -> bool:
        return mine.kept.id <= header.base_id <= mine.last_id

    return mock.patch.object(held.Held, "counts", counts)


FOUND_AS = {
    "owner not looked at": (_owner_not_looked_at, "I1 I8 I11 I14", 0),
    "holes passed over": (_holes_passed_over, "I3 I11 I14", 760),
    "parts taken for whole": (_parts_taken_for_whole, "I11", 90),
    "late rows count": (_late_rows_count, "I2 I3 I11 I14", 40),
}
"""By name: the invariants as one of which each is found, or as what an owner does not find, and the first seed."""
