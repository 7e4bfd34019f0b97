"""What the metadata tell of the subscriptions that are audited. Plain."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from delivery.errors import UnknownSubscription
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.records import SubscriptionRecord
from delivery.model import near_names


class Reached(msgspec.Struct, frozen=True):
    """How far a subscription is in a partition."""

    partition: int
    start: int
    """It is to have what lies above this id,"""
    end: int | None
    """and up to this one; None when it has no end."""
    position: int
    """Up to here it acknowledged everything, gave it up, or parked it."""
    parked: tuple[int, ...] = ()


class Subject(msgspec.Struct, frozen=True):
    """A subscription as its metadata tell of it."""

    name: str
    kind: str
    topics: tuple[str, ...]
    filter: str
    reached: tuple[Reached, ...]
    notes: tuple[str, ...] = ()
    """Why it may rightly have missed messages or had them twice."""


def subjects(catalog: Catalog, queue: str, names: Sequence[str]) -> list[Subject]:
    """These subscriptions of the queue, or all. Raises UnknownQueue, UnknownSubscription."""
    there = catalog.subscriptions(queue)
    for name in names:
        if name not in there:
            near = "".join(f"; did you mean {one!r}?" for one in near_names(name, there)[:1])
            raise UnknownSubscription(f"queue {queue!r} has no subscription {name!r}{near}")
    found = ((name, catalog.subscription(queue, name)) for name in names or there)
    return [subject(record, catalog.states(queue, name)) for name, record in found if record is not None]


def subject(record: SubscriptionRecord, states: dict[int, SubscriptionState]) -> Subject:
    """What its preferences and states tell."""
    reached = []
    for partition, start in sorted(record.starts.items()):
        state = states.get(partition)
        end = record.replay.end(partition) if record.replay else None
        parked = tuple(sorted(number for one in state.parked for number in one.ids)) if state else ()
        reached.append(Reached(partition, start, end, state.position if state else start, parked))
    moved = max([record.moves, *(state.moves for state in states.values())])
    return Subject(
        record.name, record.kind, record.topics, record.filter or "", tuple(reached), tuple(_notes(record, moved))
    )  # fmt: skip


def _notes(record: SubscriptionRecord, moved: int) -> list[str]:
    notes = []
    if moved:
        notes.append(
            f"Its positions were moved by hand (move {moved} was the last): what was skipped counts as missing, what"
            " was heard again as duplicates."
        )
    if record.bound:
        notes.append(f"Only the newest {record.bound} messages of a partition matter to it: older ones are left out.")
    if record.newest:
        notes.append("It began with the newest message of each key: older ones of a key were left out.")
    if record.topics or record.filter:
        notes.append("Judged by its topics and filter of now, whatever they were before.")
    if record.kind == "key_shared":
        notes.append("Members share its partitions: what the faster ones have acknowledged counts as waiting.")
    return notes
