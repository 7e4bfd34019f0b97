"""What a Spark read covers, how it is divided, and what a query's conditions leave of it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from delivery.errors import InvalidRequest
from delivery.filters import TOPICS_MAX
from delivery.ids import ID_MAX, first_id_at
from delivery.spark.options import Edge
from delivery.spark.ranges import TASK_MESSAGES, Held, Span, begin, divided, end, lost, pieces, shares

PLACE = ("q", 0)
HELD = Held(first_id=100, last_id=200, messages=50, bytes=5000)


@pytest.mark.parametrize(
    ("edge", "after"),
    [
        (Edge("earliest"), 99),
        (Edge("latest"), 200),
        (Edge("ids", each={"q": {0: 150}}), 149),
        (Edge("ids", each={"q": {0: -2}}), 99),
        (Edge("ids", each={"q": {0: -1}}), 200),
        (Edge("ids", each={"q": {1: 150}}), 99),
        (Edge("time", time_ms=3), first_id_at(3) - 1),
        (Edge("times", each={"q": {0: 3}}), first_id_at(3) - 1),
    ],
)
def test_a_read_begins_with_the_id_or_time_that_is_named_or_with_all_there_is(edge: Edge, after: int) -> None:
    assert begin(edge, PLACE, HELD, strict=True) == after


def test_an_id_that_is_not_there_any_more_is_an_error_unless_loss_is_allowed() -> None:
    edge = Edge("ids", each={"q": {0: 50}})
    with pytest.raises(InvalidRequest, match="nothing before id 100"):
        begin(edge, PLACE, HELD, strict=True)
    assert begin(edge, PLACE, HELD, strict=False) == 49
    nothing = Edge("ids", each={"q": {0: 0}})
    assert begin(nothing, PLACE, Held(0, 0, 0, 0), strict=True) == 0, "which is an id that a host can be asked for"


@pytest.mark.parametrize(
    ("edge", "until"),
    [
        (Edge("latest"), 200),
        (Edge("ids", each={"q": {0: 150}}), 149),
        (Edge("ids", each={"q": {0: 201}}), 200),
        (Edge("ids", each={"q": {0: -1}}), 200),
        (Edge("time", time_ms=10**18), 200),
    ],
)
def test_a_read_ends_before_the_id_or_time_that_is_named_and_never_behind_what_is_complete(
    edge: Edge, until: int
) -> None:
    assert end(edge, PLACE, HELD, strict=True) == until


@pytest.mark.parametrize("find", [begin, end])
def test_an_id_beyond_the_end_is_an_error_unless_loss_is_allowed(find: Any) -> None:
    edge = Edge("ids", each={"q": {0: 202}})
    with pytest.raises(InvalidRequest, match="complete up to id 200, and an offset names 202"):
        find(edge, PLACE, HELD, strict=True)
    assert find(edge, PLACE, HELD, strict=False) >= 200


@given(st.dictionaries(st.tuples(st.just("q"), st.integers(0, 9)), st.integers(0, 10**6)), st.integers(1, 10**6))
def test_a_limit_is_shared_in_proportion_and_leaves_nobody_out(waiting: dict[tuple[str, int], int], limit: int) -> None:
    found = shares(waiting, limit)
    assert all(0 < found[place] <= count for place, count in waiting.items() if count)
    assert sum(found.values()) <= max(limit, limit + len(waiting))


@given(st.lists(st.integers(1, 5 * TASK_MESSAGES), min_size=1, max_size=6), st.integers(0, 40))
def test_large_spans_are_divided_evenly_and_nothing_is_left_out(messages: list[int], tasks_min: int) -> None:
    spans = [Span("q", number, 0, 10**12, count) for number, count in enumerate(messages)]
    cuts = pieces(spans, tasks_min)
    for span, counts in zip(spans, cuts, strict=True):
        parts = divided(span, [one + 1 for one in counts], counts)  # ids as if every number were one
        assert sum(part.messages for part in parts) == span.messages
        assert (parts[0].after, parts[-1].until) == (span.after, span.until)
        assert all(one.until == other.after for one, other in pairwise(parts))
        assert max(part.messages for part in parts) <= TASK_MESSAGES
    tasks = sum(len(counts) + 1 for counts in cuts)
    assert tasks >= min(tasks_min, sum(messages))


def test_conditions_on_ids_times_partitions_and_topics_choose_what_is_read() -> None:
    from pyspark.sql import datasource as source

    from delivery.spark.pushing import narrow

    when = datetime(2026, 1, 2, 3, 4, 5, 678_500, tzinfo=UTC)
    found = narrow([
        source.GreaterThan(("offset",), 10), source.LessThanOrEqual(("offset",), 90),
        source.In(("partition",), (0, 1)), source.EqualTo(("partition",), 1), source.EqualTo(("topic",), "a"),
        source.GreaterThanOrEqual(("key",), b"x"), source.EqualTo(("headers", "key"), "n"),
        source.LessThan(("timestamp",), when),
    ])  # fmt: skip
    assert found.partitions == frozenset({1})
    assert found.topics == frozenset({"a"})
    assert found.span(Span("q", 1, 0, 10**18)) == Span("q", 1, 9, 90)
    assert found.span(Span("q", 0, 0, 10**18)) is None
    ms = int(when.timestamp() * 1000)
    late = narrow([source.GreaterThan(("timestamp",), when)])
    assert late.after == first_id_at(ms + 1) - 1
    assert narrow([source.LessThan(("timestamp",), when)]).until == first_id_at(ms + 1) - 1


def test_topics_that_no_message_can_have_and_too_many_of_them_are_not_asked_for() -> None:
    from pyspark.sql.datasource import EqualTo, In

    from delivery.spark.pushing import narrow

    span = Span("q", 0, -1, ID_MAX)
    assert narrow([In(("topic",), ("a", None, "eu west", "hoot.mark"))]).topics == frozenset({"a"})
    assert narrow([EqualTo(("topic",), "")]).topics == frozenset({""})
    for never in ([EqualTo(("topic",), "eu west")], [EqualTo(("topic",), "a"), EqualTo(("topic",), "b")]):
        assert narrow(never).span(span) is None
    many = In(("topic",), tuple(f"t{number}" for number in range(TOPICS_MAX + 1)))
    assert narrow([many]).topics is None
    assert narrow([many, In(("topic",), ("t1", "other")), many]).topics == frozenset({"t1"})
    assert narrow([many]).span(span) is not None


@pytest.mark.parametrize(
    ("now", "gone"),
    [
        (Span("q", 0, 150, 200, 20), 0),
        (Span("q", 0, 150, 300, 90), 0),
        (Span("q", 0, 170, 300, 4), 0),  # a batch was planned in between: what it took is not gone
        (Span("q", 0, 150, 300, 17), 3),
        (None, 20),
    ],
)
def test_what_limits_left_and_is_not_there_any_more_is_lost(now: Span | None, gone: int) -> None:
    left = Span("q", 0, 150, 200, 20)
    found = lost({PLACE: left}, {} if now is None else {PLACE: now})
    assert (0 if found is None else found.messages) == gone
