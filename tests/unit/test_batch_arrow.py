"""Arrow columns become record batches: the same bytes as a publisher makes of the same messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from delivery.batch import Row, encode, open_batch
from delivery.batch.arrow import pack
from delivery.errors import InvalidRequest, MessageTooLarge
from delivery.messaging.marks import HEADER
from delivery.model import HEADERS_BYTES_MAX, KEY_BYTES_MAX, QueueSettings, encode_headers
from delivery.spark.incoming import check_sizes, incoming
from tests.strategies import bodies, header_maps, keys, topics
from tests.unit.spark_rows import arrow, as_headers

ALL = ("value", "key", "topic", "headers")

messages = st.tuples(bodies, keys, topics, header_maps)
message_lists = st.lists(messages, min_size=1, max_size=30)
Message = tuple[bytes, bytes | None, str, dict[str, bytes]]


def row_of(message: Message) -> Row:
    body, key, topic, headers = message
    return body, key, topic, encode_headers(headers)


def columns_of(some: list[Message], *names: str) -> pa.RecordBatch:
    rows = [
        {"value": body, "key": key, "topic": topic or None, "headers": as_headers(headers) or None}
        for body, key, topic, headers in some
    ]
    return incoming(arrow(rows, *names), queue_given=True)


@given(message_lists, st.data())
def test_a_batch_of_columns_is_the_one_that_a_publisher_makes(some: list[Message], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(some) - 1))
    end = data.draw(st.integers(begin + 1, len(some)))
    part = columns_of(some, *ALL).slice(begin, end - begin)
    assert pack(part, 3, 8, 2) == encode([row_of(one) for one in some[begin:end]], 3, 8, 2)


@given(st.lists(bodies, min_size=1, max_size=600))
def test_values_alone_are_a_batch_without_topic_key_and_headers(some: list[bytes]) -> None:
    rows = incoming(arrow([{"value": body} for body in some], "value"), queue_given=True)
    assert pack(rows, 0, 1, 1) == encode([(body, None, "", b"") for body in some], 0, 1, 1)


def test_what_spark_read_of_a_transaction_it_stores_as_of_none() -> None:
    some: list[Message] = [(b"1", None, "", {HEADER: bytes(8), "a": b"b"}), (b"2", None, "", {HEADER: bytes(8)})]
    kept = [(body, None, "", {"a": b"b"} if "a" in headers else {}) for body, _, _, headers in some]
    found = open_batch(pack(columns_of(some, *ALL), 0)).messages("q")
    assert [(one.body, one.header_block) for one in found] == [(row[0], row[3]) for row in map(row_of, kept)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()], ids=str)
def test_text_is_taken_as_utf8_whatever_arrow_type_it_has(kind: pa.DataType) -> None:
    rows = incoming(arrow([{"value": "gré", "key": "é"}], "value", "key", value=kind, key=kind), queue_given=True)
    (message,) = open_batch(pack(rows, 0, 1, 1)).messages("q")
    assert (message.body, message.key) == ("gré".encode(), "é".encode())


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"value": b""}, {}], "1 of 2 rows have no value"),
        ([{"value": b"", "queue": "q"}, {"value": b""}], "1 of 2 rows have no queue"),
        ([{"value": b"", "queue": "q", "topic": "a/b"}], "no topic name"),
        ([{"value": b"", "queue": "q", "headers": [{"key": "", "value": b""}]}], "a header's key is text of 1 to"),
        ([{"value": b"", "queue": "q", "headers": [{"key": None, "value": b""}]}], "a header's key is text of 1 to"),
        ([{"value": b"", "queue": "q", "headers": [{"key": "n" * 250, "value": b""}]}], "a header's key is text"),
        ([{"value": b"", "queue": "q", "headers": as_headers({"n": bytes(HEADERS_BYTES_MAX)})}], "the limit is 65536"),
    ],
)  # fmt: skip
def test_rows_that_can_be_no_messages_are_one_error(rows: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        incoming(arrow(rows, *ALL, "queue"), queue_given=False)


def test_a_header_without_a_value_has_an_empty_one() -> None:
    rows = arrow([{"value": b"", "headers": [{"key": "n", "value": None}]}], "value", "headers")
    (message,) = open_batch(pack(incoming(rows, queue_given=True), 0, 1, 1)).messages("q")
    assert message.headers == {"n": b""}


@pytest.mark.parametrize(("column", "size"), [("value", 101), ("key", KEY_BYTES_MAX + 1)])
def test_what_the_queue_does_not_take_is_one_error_with_its_limit(column: str, size: int) -> None:
    settings = QueueSettings(body_bytes_max=100)
    fine = incoming(arrow([{"value": b"x" * 100, "key": bytes(KEY_BYTES_MAX)}], "value", "key"), queue_given=True)
    check_sizes(fine, "orders", settings)
    wrong = incoming(arrow([{"value": b"", column: bytes(size)}], "value", "key"), queue_given=True)
    with pytest.raises(MessageTooLarge, match=f"a {column} of {size} bytes; queue 'orders' takes up to {size - 1}"):
        check_sizes(wrong, "orders", settings)
