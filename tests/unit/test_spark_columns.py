"""Batches become Arrow: for Spark the same rows as the messages that anybody else reads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from delivery.batch import Batch, encode, headers_in, open_at, open_batch, select, stamp
from delivery.errors import CorruptRecord
from delivery.filters import filter_of
from delivery.ids import first_id_at
from delivery.model import encode_headers
from delivery.spark.columns import COLUMNS, to_arrow
from tests.strategies import bodies, header_maps, keys, topics

BEGIN = first_id_at(1_700_000_000_000)
messages = st.tuples(bodies, keys, topics, header_maps)


def bytes_of(some: list[Any], first: int) -> bytes:
    data = encode([(body, key, topic, encode_headers(headers)) for body, key, topic, headers in some], 3)
    return stamp(open_batch(data).header, data, first, 1)[1]


def batch_of(some: list[Any], first: int) -> Batch:
    return open_batch(bytes_of(some, first))


def rows_of(batches: list[Batch]) -> list[dict[str, Any]]:
    return [
        {
            "key": one.key, "value": one.body, "topic": one.topic, "partition": 3, "offset": one.number,
            "timestampType": 0, "headers": [{"key": name, "value": value} for name, value in one.headers.items()],
            "queue": "q",
        }
        for batch in batches
        for one in batch.messages("q")
    ]  # fmt: skip


def read(batches: list[Batch], after: int = 0, until: int = 2**62) -> list[dict[str, Any]]:
    arrow = to_arrow(batches, "q", COLUMNS, after, until)
    arrow.validate(full=True)
    rows: list[dict[str, Any]] = arrow.to_pylist()
    for row in rows:
        assert round(row.pop("timestamp").timestamp() * 1000) == row["offset"] >> 15
    return rows


@given(st.lists(st.lists(messages, min_size=1, max_size=12), min_size=1, max_size=4), st.data())
def test_the_rows_are_the_messages_between_the_ends(several: list[Any], data: st.DataObject) -> None:
    chunk, at = b"", BEGIN
    for some in several:
        chunk += bytes_of(some, at)
        at += len(some) + data.draw(st.integers(0, 3))
    batches = [open_at(chunk, place, header) for place, header in headers_in(chunk)]
    assert len(batches) == len(several)
    assert read(batches) == rows_of(batches)
    after, until = data.draw(st.integers(BEGIN - 1, at)), data.draw(st.integers(BEGIN - 1, at))
    assert read(batches, after, until) == [row for row in rows_of(batches) if after < row["offset"] <= until]


def test_a_batch_among_others_that_is_damaged_is_not_opened() -> None:
    chunk = bytes_of([(b"a", None, "", {})], BEGIN) + bytes_of([(b"b", None, "", {})], BEGIN + 1)
    (_, first), (place, second) = headers_in(chunk)
    open_at(chunk, 0, first)
    with pytest.raises(CorruptRecord, match="checksum"):
        open_at(chunk[:-1] + b"c", place, second)


@given(st.lists(st.tuples(bodies, keys, st.sampled_from(["a", "b"]), header_maps), min_size=1, max_size=40))
def test_what_a_filter_leaves_of_a_batch_keeps_its_ids(some: list[Any]) -> None:
    some.append((b"kept", b"k", "b", {}))
    data = bytes_of(some, BEGIN)
    whole = open_batch(data)
    wanted = filter_of(("b",), "")
    assert wanted is not None
    left = select(whole.header, data, wanted)
    assert left is not None
    assert read([open_batch(left)]) == [row for row in rows_of([whole]) if row["topic"] == "b"]


def test_more_topics_than_a_byte_can_tell() -> None:
    batch = batch_of([(b"x", None, f"t{number % 300}", {}) for number in range(601)], BEGIN)
    assert [row["topic"] for row in read([batch])] == [f"t{number % 300}" for number in range(601)]


def test_only_the_columns_that_are_asked_for_are_made() -> None:
    batch = batch_of([(b"x", None, "t", {})], BEGIN)
    assert to_arrow([batch], "q", ("value", "offset"), 0, BEGIN).schema.names == ["value", "offset"]
    assert to_arrow([batch], "q", COLUMNS, 0, BEGIN).schema.field("key").type == pa.binary()


def test_any_number_of_topics_may_be_in_a_batch() -> None:
    for count in (1, 2, 256, 257, 1000):
        batch = batch_of([(b"", None, f"t{number}", {}) for number in range(count)], BEGIN)
        assert read([batch]) == rows_of([batch])
