"""The record batch: what goes in comes out, damage never passes, and a topic filter filters."""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet

import pytest
from hypothesis import given, strategies as st

from delivery.batch import (
    BATCH_COUNT_MAX,
    HEADER_BYTES,
    Batch,
    Header,
    Row,
    Rows,
    encode,
    headers_in,
    open_batch,
    peek,
    select,
    stamp,
)
from delivery.errors import CorruptRecord, InvalidRequest, MessageTooLarge
from delivery.filters import Filter, Topics
from delivery.model import Message
from tests.strategies import base_ids, epochs, partitions, row_lists, rows, stamped, stamped_batches, times, topics

SMALL = stamped([(b"body", b"key", "JFK", b""), (b"", None, "EWR", b"")], 77, epoch=5, partition=3, producer=(9, 4))


def expected(some_rows: Sequence[Row], base_id: int, partition: int) -> list[Message]:
    return [
        Message(base_id + place, body, topic, key, partition, "q", block)
        for place, (body, key, topic, block) in enumerate(some_rows)
    ]


@given(row_lists, base_ids, epochs, partitions)
def test_messages_come_out_as_they_went_in(some_rows: list[Row], base_id: int, epoch: int, partition: int) -> None:
    header, data = stamped(some_rows, base_id, epoch=epoch, partition=partition, producer=(8, 2))
    batch = open_batch(data)
    assert list(batch.messages("q")) == expected(some_rows, base_id, partition)
    assert batch.header == header
    assert (header.epoch, header.base_id, header.count, header.length) == (epoch, base_id, len(some_rows), len(data))
    assert (header.producer_id, header.producer_sequence, header.last_id) == (8, 2, base_id + len(some_rows) - 1)


@given(row_lists, st.integers(-1, 650))
def test_messages_after_an_id_are_those_above_it(some_rows: list[Row], skip: int) -> None:
    _, data = stamped(some_rows, 1000)
    all_messages = expected(some_rows, 1000, 0)
    assert list(open_batch(data).messages("q", after=999 + skip)) == all_messages[max(0, skip) :]


@given(row_lists)
def test_the_longest_parts_are_known_for_checks_against_limits(some_rows: list[Row]) -> None:
    batch = open_batch(stamped(some_rows, 1)[1])
    assert batch.body_length_max == max(len(body) for body, _, _, _ in some_rows)
    assert batch.key_length_max == max(len(key or b"") for _, key, _, _ in some_rows)
    assert batch.header_block_max == max(len(block) for _, _, _, block in some_rows)
    assert set(batch.topics) == {topic for _, _, topic, _ in some_rows}


@given(stamped_batches())
@times(0.5)
def test_no_part_of_a_batch_passes_for_a_batch(batch: tuple[Header, bytes]) -> None:
    _, data = batch
    for size in sorted({*range(min(len(data), 300)), len(data) - 1}):
        with pytest.raises(CorruptRecord):
            open_batch(data[:size])


@pytest.mark.parametrize("place", range(len(SMALL[1])))
def test_every_flipped_bit_of_every_byte_is_detected(place: int) -> None:
    data = SMALL[1]
    for bit in range(8):
        flipped = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
        with pytest.raises(CorruptRecord):
            open_batch(flipped)


@given(stamped_batches(), st.data())
def test_a_changed_byte_anywhere_is_detected(batch: tuple[Header, bytes], data: st.DataObject) -> None:
    _, raw = batch
    place, change = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecord):
        open_batch(raw[:place] + bytes([raw[place] ^ change]) + raw[place + 1 :])


@pytest.mark.parametrize("topics", [2, 300])
def test_a_message_of_a_topic_that_is_not_in_the_dictionary_is_damage(topics: int) -> None:
    header, data = stamped([(b"", None, f"t{number}", b"") for number in range(topics)], 1)
    at = HEADER_BYTES + sum(1 + len(f"t{number}") for number in range(topics))
    for place in (0, topics - 1):
        index = at + 2 * place
        with pytest.raises(CorruptRecord, match="names a topic that its dictionary lacks"):
            Batch(header, data[:index] + topics.to_bytes(2, "little") + data[index + 2 :])


@given(st.lists(stamped_batches(), min_size=1, max_size=2))
@times(0.5)
def test_read_a_byte_at_a_time_a_batch_appears_when_it_is_whole(batches: list[tuple[Header, bytes]]) -> None:
    stream = b"".join(data for _, data in batches)[:5000]
    ends = [sum(header.length for header, _ in batches[: n + 1]) for n in range(len(batches))]
    for size in range(len(stream) + 1):
        prefix = memoryview(stream)[:size]
        assert (peek(prefix) is None) == (size < HEADER_BYTES)
        whole = [(header.length, header) for _, header in headers_in(prefix)]
        assert len(whole) == sum(end <= size for end in ends)
        assert [header for _, header in whole] == [header for header, _ in batches[: len(whole)]]


@given(stamped_batches(), st.binary(min_size=HEADER_BYTES, max_size=100))
def test_what_follows_a_batch_and_is_none_is_refused(batch: tuple[Header, bytes], junk: bytes) -> None:
    with pytest.raises(CorruptRecord):
        list(headers_in(batch[1] + junk))


@given(st.binary(max_size=300))
def test_random_bytes_are_no_batch(junk: bytes) -> None:
    with pytest.raises(CorruptRecord):
        open_batch(junk)


@given(row_lists, base_ids, epochs)
def test_stamping_changes_the_owners_fields_and_nothing_else(some_rows: list[Row], base_id: int, epoch: int) -> None:
    raw = encode(some_rows, 6, 1, 2)
    header = peek(raw)
    assert header is not None
    again, data = stamp(header, raw, base_id, epoch)
    assert data[HEADER_BYTES:] == raw[HEADER_BYTES:]
    assert data[:16] == raw[:16]
    assert data[32:60] == raw[32:60]
    assert (again.base_id, again.epoch) == (base_id, epoch)
    assert peek(data) == again


@given(row_lists, base_ids, st.frozensets(topics, max_size=4))
def test_select_leaves_the_messages_of_the_topics_with_their_ids(
    some_rows: list[Row], base_id: int, wanted: AbstractSet[str]
) -> None:
    header, data = stamped(some_rows, base_id, epoch=3, partition=9)
    left = [message for message in expected(some_rows, base_id, 9) if message.topic in wanted]
    picked = select(header, data, Filter(Topics(tuple(wanted))))
    if picked is None:
        assert left == []
        return
    batch = open_batch(picked)
    assert list(batch.messages("q")) == left
    assert list(batch.ids()) == [message.number for message in left]
    assert (batch.header.epoch, batch.header.base_id, batch.header.last_id) == (3, base_id, header.last_id)
    assert (picked is data) == (len(left) == len(some_rows))


@given(st.lists(rows, min_size=2, max_size=12), st.frozensets(topics, max_size=3), st.frozensets(topics, max_size=3))
def test_selecting_twice_is_selecting_what_both_want(
    some_rows: list[Row], first: AbstractSet[str], second: AbstractSet[str]
) -> None:
    header, data = stamped(some_rows, 500)
    both = [m.number for m in expected(some_rows, 500, 0) if m.topic in first and m.topic in second]
    once = select(header, data, Filter(Topics(tuple(first))))
    smaller = peek(once) if once is not None else None
    twice = select(smaller, once, Filter(Topics(tuple(second)))) if smaller is not None and once is not None else None
    assert [message.number for message in open_batch(twice).messages("q")] == both if twice else both == []


@pytest.mark.parametrize("count", [0, BATCH_COUNT_MAX + 1])
def test_a_batch_of_no_messages_or_too_many_is_refused(count: int) -> None:
    with pytest.raises(InvalidRequest):
        encode([(b"", None, "", b"")] * count, 0)


def test_the_largest_count_fits() -> None:
    header, data = stamped([(b"", None, "", b"")] * BATCH_COUNT_MAX, 1)
    assert header.count == len(list(open_batch(data).messages("q"))) == BATCH_COUNT_MAX


def test_a_batch_above_twelve_mebibytes_is_refused() -> None:
    with pytest.raises(MessageTooLarge):
        encode([(b"x" * (4 << 20), None, "", b"")] * 3, 0)


@given(row_lists)
def test_rows_gathered_one_by_one_make_the_same_batch_as_all_at_once(some_rows: list[Row]) -> None:
    gathered = Rows()
    for row in some_rows:
        gathered.append(row)
    assert len(gathered) == len(some_rows)
    assert gathered.encode(3, 7, 9) == encode(some_rows, 3, 7, 9)


def test_rows_of_one_topic_are_kept_as_bodies_alone_until_one_differs() -> None:
    gathered = Rows()
    for number in range(3):
        gathered.append((b"%d" % number, None, "t", b""))
    plain = [gathered.plain]
    gathered.append((b"3", None, "other", b""))
    assert [*plain, gathered.plain] == ["t", None]
    assert open_batch(gathered.encode(0, 0, 0)).columns().topics == ["t", "t", "t", "other"]
