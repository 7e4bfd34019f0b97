"""Conditions of a query that choose what is read at all. Plain.

Spark evaluates them once more on what comes, so that narrowing less than they say costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from delivery.errors import InvalidRequest
from delivery.filters import TOPICS_MAX
from delivery.ids import ID_MAX, first_id_at
from delivery.model import check_topic
from delivery.spark.ranges import Span

_EQUAL: Final = (EqualTo, EqualNullSafe)
_BELOW: Final = (LessThan, LessThanOrEqual)
_ABOVE: Final = (GreaterThan, GreaterThanOrEqual)


class Narrowed(msgspec.Struct, frozen=True):
    """What of a queue can match at all."""

    after: int = -1
    until: int = ID_MAX
    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    """None for all."""

    def span(self, span: Span) -> Span | None:
        """What is left of a span."""
        if self.partitions is not None and span.partition not in self.partitions:
            return None
        after, until = max(span.after, self.after), min(span.until, self.until)
        return Span(span.queue, span.partition, after, until) if after < until else None


def narrow(filters: Iterable[Filter]) -> Narrowed:
    """What all of them leave."""
    found = Narrowed()
    for one in filters:
        found = _narrowed(found, one)
    return found


def _narrowed(found: Narrowed, one: Filter) -> Narrowed:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    value: Any = getattr(one, "value", None)
    if len(path) != 1 or value is None:
        return found
    column = path[0].lower()
    if column in {"partition", "topic"} and isinstance(one, (*_EQUAL, In)):
        values = frozenset(value if isinstance(one, In) else [value])
        return _in_partitions(found, values) if column == "partition" else _of_topics(found, values)
    if column == "offset" and isinstance(value, int):
        return _between(found, one, value, value)
    if column == "timestamp" and isinstance(value, datetime):
        first = first_id_at(_ceiling_ms(value))
        return _between(found, one, first, first_id_at(_floor_ms(value) + 1) - 1)
    return found


def _in_partitions(found: Narrowed, values: frozenset[Any]) -> Narrowed:
    left = values if found.partitions is None else found.partitions & values
    return msgspec.structs.replace(found, partitions=left)


def _of_topics(found: Narrowed, values: frozenset[Any]) -> Narrowed:
    """Hosts are asked for no topic that no message can have, and for no more of them than they take."""
    able = frozenset(filter(_is_topic, values))
    left = able if found.topics is None else found.topics & able
    if not left:
        return msgspec.structs.replace(found, until=-1)
    return found if len(left) > TOPICS_MAX else msgspec.structs.replace(found, topics=left)


def _is_topic(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        check_topic(value)
    except InvalidRequest:
        return False
    return True


def _between(found: Narrowed, one: Filter, first: int, last: int) -> Narrowed:
    """The value of `one` stands for the ids from `first` to `last`; bounds take in what lies on them."""
    after, until = found.after, found.until
    if isinstance(one, (*_ABOVE, *_EQUAL)):
        after = max(after, first - 1)
    if isinstance(one, (*_BELOW, *_EQUAL)):
        until = min(until, last)
    return msgspec.structs.replace(found, after=after, until=until)


def _micros(value: datetime) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _floor_ms(value: datetime) -> int:
    return _micros(value) // 1000


def _ceiling_ms(value: datetime) -> int:
    return -(-_micros(value) // 1000)
