"""Ranges of ids to read, and how they are bounded, divided and narrowed. Plain.

A range is all above `after` and up to `until`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from delivery.errors import InvalidRequest
from delivery.ids import ID_MAX, first_id_at
from delivery.spark.options import EARLIEST, LATEST, Edge

Place = tuple[str, int]
"""A queue and a partition."""

TASK_MESSAGES: Final = 1_000_000
"""About so many messages are one task's, unless `minPartitions` asks for more tasks."""


class Held(msgspec.Struct, frozen=True):
    """What a partition holds."""

    first_id: int
    last_id: int
    messages: int
    bytes: int


class Span(msgspec.Struct, frozen=True):
    """What is to be read of a partition."""

    queue: str
    partition: int
    after: int
    until: int
    messages: int = 0
    """How many there are, whatever a filter leaves."""


def begin(edge: Edge, place: Place, held: Held, *, strict: bool) -> int:
    """The id behind which to read. Raises InvalidRequest, with `strict`, for an id that is gone or beyond the end."""
    asked = _asked(edge, place, absent=EARLIEST)
    if asked == EARLIEST:
        return held.first_id - 1 if held.messages else held.last_id
    if asked == LATEST:
        return held.last_id
    if edge.kind == "ids" and held.messages and asked < held.first_id and strict:
        raise InvalidRequest(
            f"{place[0]}/{place[1]} holds nothing before id {held.first_id} any more, and the read is to begin at"
            f" {asked}; failOnDataLoss=false begins at what there is"
        )
    if strict:
        _check_not_beyond(edge, place, held, asked)
    return max(0, asked - 1)


def end(edge: Edge, place: Place, held: Held, *, strict: bool) -> int:
    """The id up to which to read: nothing that is not complete. Raises InvalidRequest as `begin`."""
    asked = _asked(edge, place, absent=LATEST)
    if strict:
        _check_not_beyond(edge, place, held, asked)
    return held.last_id if asked == LATEST else min(asked - 1, held.last_id)


def _check_not_beyond(edge: Edge, place: Place, held: Held, asked: int) -> None:
    if edge.kind == "ids" and asked > held.last_id + 1:
        raise InvalidRequest(
            f"{place[0]}/{place[1]} is complete up to id {held.last_id}, and an offset names {asked};"
            " failOnDataLoss=false takes it for the end"
        )


def _asked(edge: Edge, place: Place, absent: int) -> int:
    """An id, EARLIEST or LATEST."""
    queue, partition = place
    if edge.kind == "time":
        return min(first_id_at(edge.time_ms), ID_MAX)
    if edge.kind in {"earliest", "latest"}:
        return EARLIEST if edge.kind == "earliest" else LATEST
    number = edge.each.get(queue, {}).get(partition)
    if number is None:
        return absent
    return number if edge.kind == "ids" else min(first_id_at(number), ID_MAX)


def shares(waiting: Mapping[Place, int], limit: int) -> dict[Place, int]:
    """How many messages of each partition to read when `limit` are asked for: in proportion, and of each some."""
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    return {place: max(1, count * limit // total) for place, count in waiting.items() if count}


def allowances(
    waiting: Mapping[Place, Span], held: Mapping[Place, Held], messages_max: int, bytes_max: int
) -> dict[Place, int]:  # fmt: skip
    """How many messages of each partition to read, so that a batch has about so many and so many bytes; 0: no limit."""
    counts = {place: span.messages for place, span in waiting.items()}
    allowed = shares(counts, messages_max or sum(counts.values()))
    if not bytes_max:
        return allowed
    sizes = {place: held[place].bytes / max(1, held[place].messages) for place in waiting}
    part = min(1.0, bytes_max / max(1.0, sum(count * sizes[place] for place, count in counts.items())))
    return {place: min(allowed[place], max(1, int(count * part))) for place, count in counts.items()}


def lost(left: Mapping[Place, Span], waiting: Mapping[Place, Span]) -> Span | None:
    """What is gone of that which was `left` of partitions when a batch was planned, now that the next one is to be.

    `waiting` has what is there behind the same ids, and more that came; nothing of a partition where nothing is. A
    partition that was read on meanwhile is not looked at. None when nothing is gone.
    """
    for place, span in left.items():
        found = waiting.get(place, msgspec.structs.replace(span, messages=0))
        if found.after == span.after and found.messages < span.messages:
            return msgspec.structs.replace(span, messages=span.messages - found.messages)
    return None


def pieces(spans: Sequence[Span], tasks_min: int) -> list[list[int]]:
    """For each span the rising counts of messages at which to divide it into tasks of like size; none for one task."""
    total = sum(span.messages for span in spans)
    size = max(1, min(TASK_MESSAGES, total // tasks_min)) if tasks_min else TASK_MESSAGES
    found = []
    for span in spans:
        count = -(-span.messages // size)
        found.append([span.messages * number // count for number in range(1, count)])
    return found


def divided(span: Span, ids: Sequence[int], counts: Sequence[int]) -> list[Span]:
    """The span cut behind each of `ids`, up to which it has so many messages."""
    edges = [(span.after, 0), *zip(ids, counts, strict=True), (span.until, span.messages)]
    return [
        Span(span.queue, span.partition, low, high, above - below)
        for (low, below), (high, above) in pairwise(edges)
        if low < high
    ]
