"""Names, settings, headers, routing: what is refused, and that what is accepted keeps its meaning for ever."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from delivery.errors import CorruptRecord, InvalidRequest, MessageTooLarge, UnknownPartition
from delivery.ids import MessageId
from delivery.model import (
    HEADERS_BYTES_MAX,
    Message,
    QueueSettings,
    check_name,
    check_partition,
    check_settings,
    check_topic,
    decode_headers,
    encode_headers,
    near_names,
    partition_of,
    tolerant_headers,
)
from tests.strategies import header_maps, names

BAD_NAMES = ["", ".", "..", "a/b", "%2e", "a b", "a\r\nb", "a\0b", "ü", "a" * 250, "a" * 10_000, "a\n", None, b"a", 7]


@given(names)
def test_a_name_of_allowed_characters_is_kept(name: str) -> None:
    assert check_name("queue", name) == name


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_in_one_short_line(name: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_name("queue", name)
    assert len(caught.value.message) < 200
    assert "\n" not in caught.value.message


def test_a_topic_may_be_missing_but_not_bad() -> None:
    assert check_topic("") == ""
    assert check_topic("JFK") == "JFK"
    with pytest.raises(InvalidRequest):
        check_topic("..")


@pytest.mark.parametrize("partition", [-1, 4, 10**30, "0", None])
def test_a_partition_outside_the_queue_is_unknown(partition: Any) -> None:
    with pytest.raises(UnknownPartition):
        check_partition(partition, 4, "q")


def test_a_partition_of_the_queue_is_kept() -> None:
    assert [check_partition(p, 4, "q") for p in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("key", "partition"), [(b"", 0), (b"123456789", 0xCBF43926 % 100), (b"UA", 20), (b"hoot", 64), (b"\x00\xff", 94)]
)
def test_routing_is_the_same_for_ever(key: bytes, partition: int) -> None:
    """Of 100 partitions; the values are those of the CRC-32 that zlib and zip files use."""
    assert partition_of(key, 100) == partition


@given(st.binary(max_size=50), st.integers(1, 32767))
def test_a_key_is_routed_to_a_partition_that_exists(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions


@given(header_maps)
def test_headers_come_out_as_they_went_in(headers: dict[str, bytes]) -> None:
    assert decode_headers(encode_headers(headers)) == headers
    assert Message(1, b"", "", None, 0, "q", encode_headers(headers)).headers == headers


@given(header_maps.filter(bool), st.data())
def test_a_header_block_that_was_cut_does_not_parse_as_the_same(headers: dict[str, bytes], data: st.DataObject) -> None:
    block = encode_headers(headers)
    cut = block[: data.draw(st.integers(0, len(block) - 1))]
    with suppress(CorruptRecord):
        assert decode_headers(cut).items() < headers.items()


@given(st.binary(max_size=60))
def test_a_random_header_block_parses_or_is_corrupt(block: bytes) -> None:
    with suppress(CorruptRecord):
        decode_headers(block)


@pytest.mark.parametrize("headers", [{"": b""}, {"a": "text"}, {1: b""}, {"a": None}, {"n" * 250: b""}])
def test_bad_headers_are_refused(headers: Any) -> None:
    with pytest.raises(InvalidRequest):
        encode_headers(headers)


def test_headers_above_their_limit_are_too_large() -> None:
    with pytest.raises(MessageTooLarge):
        encode_headers({"a": b"x" * HEADERS_BYTES_MAX})


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0},
        {"partitions": 32768},
        {"durability": "disk"},
        {"ttl_seconds": 0.5},
        {"ttl_seconds": float("nan")},
        {"ttl_seconds": -1.0},
        {"retention_bytes": 1},
        {"backlog_messages": 0},
        {"backlog_messages": -1},
        {"backlog_bytes": 0},
        {"backlog_bytes": 1 << 61},
        {"backlog_bytes": 1 << 20, "retention_bytes": 1 << 20},
        {"backlog_bytes": 2 << 20, "retention_bytes": 1 << 20},
        {"body_bytes_max": 0},
        {"body_bytes_max": 9 << 20},
        {"layout": "columns"},
        {"layout": ""},
    ],
)
def test_a_setting_outside_its_limits_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest):
        check_settings(QueueSettings(**wrong))


def test_all_wrong_settings_are_named_at_once() -> None:
    with pytest.raises(InvalidRequest, match=r"partitions.*ttl.*retention"):
        check_settings(QueueSettings(partitions=0, ttl_seconds=0.0, retention_bytes=0))


def test_the_defaults_are_allowed() -> None:
    assert check_settings(QueueSettings()) == QueueSettings()


def test_a_backlog_that_retention_leaves_room_for_is_allowed() -> None:
    check_settings(QueueSettings(backlog_messages=1, backlog_bytes=1024, retention_bytes=1 << 20))


def test_a_message_tells_its_id_and_time() -> None:
    message = Message(MessageId.of(1_732_165_000_500, 3), b"b", "t", None, 0, "q")
    assert str(message.id) == "1732165000500-3"
    assert message.publish_time == 1_732_165_000.5
    assert message.headers == {}


def test_a_mistyped_name_finds_its_neighbours() -> None:
    assert list(near_names("fligths", ["flights", "weather", "flight"]))[:1] == ["flights"]
    assert list(near_names("x", ["flights"])) == []


def test_headers_that_are_nonsense_are_an_error_or_none_as_asked() -> None:
    with pytest.raises(CorruptRecord):
        decode_headers(b"\xff\xff\xff")
    assert tolerant_headers(b"\xff\xff\xff") == {}
    assert tolerant_headers(encode_headers({"a": b"1"})) == {"a": b"1"}
