"""What every message store promises; one suite over all of them. `host` makes one more host on the same storage."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from delivery.batch import headers_in, open_batch, select
from delivery.batch.encode import Row
from delivery.errors import Fenced, StorageUnavailable
from delivery.filters import Filter, Topics
from delivery.filters.explaining import row_of
from delivery.model import Message, QueueSettings, encode_headers
from delivery.storage.base import Append, Bounds, MessageStore, PartitionKey
from tests.stores import KEY, NOW_MS, OTHER, batch, batches_of, bodies_of, headers_of, messages_of, sized, store_all
from tests.strategies import stamped, times

Host = Callable[[], MessageStore]
KEEP = QueueSettings()
generations = itertools.count()


# -- appending and reading ------------------------------------------------------------------------------------------


def test_a_fresh_partition_is_empty(host: Host) -> None:
    store = host()
    state = store.open(KEY, 1, KEEP)
    assert (state.last_id, state.producers) == (0, ())
    assert store.read(KEY, 0, 1000) is None
    assert store.bounds(KEY) == Bounds(0, 0, 0, 0)
    assert store.measure(KEY, 0, 10**18).messages == 0
    assert store.trim(KEY, QueueSettings(ttl_seconds=1), NOW_MS) == 0


def test_batches_come_back_byte_for_byte_in_order(store: MessageStore) -> None:
    group = [batch(10, [b"a", b"b"]), batch(100, [b"c"]), batch(101, [b"", b"d" * 5000])]
    store_all(store, group[:1])
    store_all(store, group[1:])
    assert batches_of(store) == [item.batch for item in group]
    assert bodies_of(store) == [b"a", b"b", b"c", b"", b"d" * 5000]
    assert headers_of(store) == [item.header for item in group]


def test_an_empty_group_is_fine(store: MessageStore) -> None:
    assert store.append([]) == []


def test_partitions_do_not_mix(store: MessageStore) -> None:
    store_all(store, [batch(5, [b"x"]), batch(7, [b"y"], key=OTHER), batch(6, [b"z"])])
    assert bodies_of(store) == [b"x", b"z"]
    assert bodies_of(store, OTHER) == [b"y"]


def test_reading_starts_above_an_id_wherever_it_lies(store: MessageStore) -> None:
    """Before the first, inside a batch, at its end, in a gap between batches, at the end of all, beyond it."""
    store_all(store, [batch(10, [b"a"] * 5), batch(100, [b"b"] * 5), batch(105, [b"c"])])
    starts = {0: 10, 9: 10, 10: 10, 13: 10, 14: 100, 50: 100, 99: 100, 103: 100, 104: 105, 105: None, 999: None}
    for after, first in starts.items():
        chunk = store.read(KEY, after, 1)
        assert (chunk.headers[0].base_id if chunk else None) == first, after


def test_a_chunk_holds_as_many_whole_batches_as_fit_but_at_least_one(store: MessageStore) -> None:
    group = [batch(base, [b"x" * 100]) for base in range(1, 11)]
    size = group[0].header.length
    store_all(store, group)
    for limit, count in {1: 1, size: 1, 2 * size - 1: 1, 2 * size: 2, 5 * size + 1: 5, 100 * size: 10}.items():
        chunk = store.read(KEY, 0, limit)
        assert chunk is not None
        assert len(chunk.headers) == count
        assert chunk.data == b"".join(item.batch for item in group[:count])
        assert chunk.last_id == count


def test_a_batch_larger_than_the_limit_is_read_whole(store: MessageStore) -> None:
    big = sized(1, 300_000)
    store_all(store, [big, batch(2)])
    chunk = store.read(KEY, 0, 10)
    assert chunk is not None
    assert chunk.data == big.batch


def test_bounds_tell_what_is_there(store: MessageStore) -> None:
    group = [batch(10, [b"a"] * 5), batch(100, [b"b"] * 7)]
    store_all(store, group)
    assert store.bounds(KEY) == Bounds(10, 106, 12, sum(item.header.length for item in group))


@settings(times(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 12_000)), min_size=1, max_size=40),
    refused=st.sets(st.sampled_from("abc")),
    limit=st.integers(1, 20_000),
    after=st.integers(0, 400),
)
def test_what_is_refused_may_be_left_out_and_everything_else_comes(
    host: Host, shape: list[tuple[str, int]], refused: set[str], limit: int, after: int
) -> None:
    store = host()
    key = PartitionKey("some", f"g{next(generations)}", 0)
    store.open(key, 1, KEEP)
    group = [sized(10 * place, size, key=key, topic=topic) for place, (topic, size) in enumerate(shape, start=1)]
    for item in group:
        store_all(store, [item])
    read: list[tuple[str, int]] = []
    position = after
    while (chunk := store.read(key, position, limit, lambda _, topics: topics[1:].decode() in refused)) is not None:
        assert chunk.last_id > position
        position = chunk.last_id
        found = [open_batch(chunk.data[at : at + header.length]) for at, header in headers_in(chunk.data)]
        assert [one.header for one in found] == list(chunk.headers)
        read += [(one.topics[0], one.header.base_id) for one in found]
    every = [(topic, 10 * place) for place, (topic, _) in enumerate(shape, start=1) if 10 * place > after]
    assert [one for one in read if one[0] not in refused] == [one for one in every if one[0] not in refused]
    assert set(read) <= set(every)
    assert position == max(after, 10 * len(shape))


def test_who_reads_some_topics_gets_all_of_them_and_knows_how_far_that_looked(store: MessageStore) -> None:
    """Batches of one topic, of some, of many, with keys and without; a seal in the midst of them."""
    store_all(store, [_of_topics(first, epoch=1) for first in range(1, 400, 40)])
    store.open(KEY, 2, KEEP)
    store_all(store, [_of_topics(first, epoch=2) for first in range(401, 800, 40)])
    everything = messages_of(store)
    for asked in ("t1", "t0 t7", "t*", "never", "hit", "t1 hit t2", "*"):
        chosen = Filter(Topics(tuple(asked.split())))
        wanted = [message for message in everything if chosen.takes(row_of(message))]
        for bytes_max in (1, 400, 1 << 20):
            assert _taken(store, chosen, bytes_max) == (wanted, store.bounds(KEY).last_id), asked


def _taken(store: MessageStore, chosen: Filter, bytes_max: int) -> tuple[list[Message], int]:
    """What a filter takes of a partition, and the last id that was looked at."""
    found: list[Message] = []
    after = 0
    while (chunk := store.read(KEY, after, bytes_max, chosen.refuses)) is not None:
        assert chunk.last_id > after
        assert [header for _, header in headers_in(chunk.data)] == list(chunk.headers)
        for at, header in headers_in(chunk.data):
            part = select(header, chunk.data[at : at + header.length], chosen)
            found += [] if part is None else open_batch(part).messages(KEY.queue)
        after = chunk.last_id
    return found, after


def _of_topics(first_id: int, *, epoch: int) -> Append:
    """Up to 30 messages, as their first id says."""
    draw = random.Random(first_id)
    topics = draw.choice([["hit"], ["none"], ["hit", "none"], [f"t{number}" for number in range(20)]])
    keys: list[bytes | None] = draw.choice([[None], [None, b"", b"key"]])
    blocks = draw.choice([[b""], [b"", encode_headers({"h": b"1"})]])
    rows: list[Row] = [
        (draw.randbytes(9), draw.choice(keys), draw.choice(topics), draw.choice(blocks))
        for _ in range(draw.randint(1, 30))
    ]
    header, data = stamped(rows, first_id, epoch=epoch, partition=KEY.partition)
    return Append(KEY, epoch, header, data, "fsync")


# -- what a producer sent before ------------------------------------------------------------------------------------


def test_opening_again_tells_the_last_id_and_the_producers_batches(host: Host) -> None:
    store = host()
    store.open(KEY, 1, KEEP)
    store_all(store, [batch(10, [b"a"] * 5, producer=(7, 0)), batch(20, producer=(8, 4)), batch(30)])
    store_all(store, [batch(40, [b"b"] * 2, producer=(7, 1))])
    expected = [(7, 0, 10, 5), (8, 4, 20, 1), (7, 1, 40, 2)]
    states = [store.open(KEY, epoch, KEEP) for epoch in (1, 2, 9)]
    for state in (*states, host().open(KEY, 10, KEEP)):
        assert state.last_id == 41
        assert [(one.producer_id, one.sequence, one.base_id, one.count) for one in state.producers] == expected


def test_the_last_sixteen_batches_of_a_producer_are_remembered(store: MessageStore) -> None:
    store_all(store, [batch(base, producer=(5, base)) for base in range(1, 41)])
    assert [stored.sequence for stored in store.open(KEY, 2, KEEP).producers] == list(range(25, 41))


def test_of_more_than_a_thousand_producers_the_last_batch_is_remembered(store: MessageStore) -> None:
    store_all(store, [batch(base, producer=(base, 0)) for base in range(1, 1004)])
    store_all(store, [batch(2000 + base, producer=(base, 1)) for base in range(1, 1004)])
    known = store.open(KEY, 2, KEEP).producers
    assert [(one.producer_id, one.sequence) for one in known] == [
        *((base, 0) for base in range(4, 1004)), *((base, 1) for base in range(1, 1004)),
    ]  # fmt: skip


# -- the end --------------------------------------------------------------------------------------------------------


def test_a_released_partition_is_closed_and_opens_again_with_its_data(store: MessageStore) -> None:
    store_all(store, [batch(1, [b"a"])])
    store.release(KEY)
    store.release(KEY)
    with pytest.raises(StorageUnavailable):
        store.read(KEY, 0, 10)
    with pytest.raises(StorageUnavailable):
        store.bounds(KEY)
    group = [batch(2), batch(1, key=OTHER)]
    assert [type(answer) for answer in store.append(group)] == [StorageUnavailable, type(None)]
    assert store.open(KEY, 1, KEEP).last_id == 1
    assert bodies_of(store) == [b"a"]


def test_a_partition_that_was_never_opened_is_not_served(store: MessageStore) -> None:
    unknown = PartitionKey("orders", "g1", 99)
    for call in (store.bounds, lambda key: store.read(key, 0, 10), lambda key: store.measure(key, 0, 10)):
        with pytest.raises(StorageUnavailable):
            call(unknown)
    store.release(unknown)


def test_a_deleted_queue_is_gone_and_its_owners_are_fenced(host: Host) -> None:
    owner, other = host(), host()
    owner.open(KEY, 1, KEEP)
    store_all(owner, [batch(1)])
    other.delete("orders", "g1")
    other.delete("orders", "g1")
    other.delete("never", "g9")
    assert isinstance(owner.append([batch(2)])[0], Fenced)
    later = PartitionKey("orders", "g2", 3)
    assert other.open(later, 1, KEEP).last_id == 0
    store_all(other, [batch(1, key=later)])


def test_deleting_one_generation_leaves_the_others(store: MessageStore) -> None:
    second = PartitionKey("orders", "g2", 3)
    store.open(second, 1, KEEP)
    store_all(store, [batch(1, key=second)])
    store.delete("orders", "g1")
    assert len(headers_of(store, second)) == 1


def test_closing_twice_is_fine_and_then_nothing_is_served(store: MessageStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StorageUnavailable):
        store.read(KEY, 0, 10)
    with pytest.raises(StorageUnavailable):
        store.open(KEY, 2, KEEP)


@pytest.mark.parametrize("wrong", [batch(5), batch(10), batch(20, epoch=7), batch(20, key=OTHER)])
def test_a_batch_stamped_wrongly_never_gets_in(store: MessageStore, wrong: Append) -> None:
    """Ids that do not rise, another epoch or partition than it is appended to: the caller's mistake, stopped hard."""
    store_all(store, [batch(10)])
    for epoch in (1, 2):
        store.open(KEY, epoch, KEEP)
        with pytest.raises(AssertionError):
            store.append([msgspec.structs.replace(wrong, key=KEY, epoch=epoch)])
        store_all(store, [batch(10 + epoch, epoch=epoch)])
        assert len(headers_of(store)) == 1 + epoch
