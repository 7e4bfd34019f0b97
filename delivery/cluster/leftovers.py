"""What a store holds of queues that are gone, told from what it holds of those that are there.

A store learns of a queue after the MetaStore, and a generation never comes again. So what a store held *before* the
records were read, and what has no record then, belongs to no queue any more; if it is this MetaStore that the store's
hosts work with. That a single generation is in both proves it, for they are random. Without one nothing is proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from delivery.errors import CorruptRecord
from delivery.metastore.records import QueueRecord

Generation = tuple[str, str]
"""A queue's name and its generation."""


class Records(Protocol):
    """Where queue records are read (metastore.catalog.Catalog); blocking."""

    def read_queues(self, names: Sequence[str]) -> list[QueueRecord | CorruptRecord | None]:
        """Many of them."""


class Held(NamedTuple):
    """What a store holds. Data of a queue whose record is damaged is in neither list."""

    known: list[QueueRecord]
    """The queues that are there and of whose name it has something."""
    left: list[Generation]
    """What belongs to no queue, sorted."""
    related: bool
    """Whether it has data of a queue that is there: then the store and the records belong together."""


def sort_out(held: Sequence[Generation], records: Records) -> Held:
    """Compare what a store holds with the records, read now. Raises what reading raises."""
    names = sorted({name for name, _ in held})
    found = dict(zip(names, records.read_queues(names), strict=True))
    known = [record for record in found.values() if isinstance(record, QueueRecord)]
    living = {(record.name, record.generation) for record in known}
    damaged = {name for name, record in found.items() if isinstance(record, CorruptRecord)}
    left = sorted(one for one in set(held) - living if one[0] not in damaged)
    return Held(known, left, not living.isdisjoint(held))
