"""The tail cache: the newest batches, contiguous to the end, within its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from delivery.storage.base import PartitionKey
from delivery.storage.tail import TailCache
from tests.stores import KEY, OTHER, batch

SIZE = batch(1, [b"x" * 100]).header.length


def cache_of(*bases: int, bytes_max: int = 100 * SIZE) -> TailCache:
    cache = TailCache(bytes_max)
    for base in bases:
        add(cache, base)
    return cache


def add(cache: TailCache, base: int, key: PartitionKey = KEY) -> bytes:
    item = batch(base, [b"x" * 100], key=key)
    cache.append(key, item.header, item.batch)
    return item.batch


def bases(cache: TailCache, after: int, bytes_max: int = 10**9, key: PartitionKey = KEY) -> list[int]:
    chunk = cache.read(key, after, bytes_max)
    return [header.base_id for header in chunk.headers] if chunk else []


def test_a_partition_that_was_never_seen_is_not_covered() -> None:
    cache = TailCache(1000)
    assert not cache.covers(KEY, 0)
    assert cache.read(KEY, 0, 100) is None


def test_a_partition_that_begins_is_covered_from_its_last_id_on() -> None:
    cache = TailCache(10_000)
    cache.begin(KEY, 50)
    assert not cache.covers(KEY, 49)
    assert cache.covers(KEY, 50)
    assert cache.read(KEY, 50, 100) is None
    add(cache, 900)
    assert bases(cache, 50) == [900]


def test_without_a_beginning_the_first_batch_is_one() -> None:
    cache = cache_of(900)
    assert not cache.covers(KEY, 898)
    assert cache.covers(KEY, 899)


def test_reading_gives_what_is_above_an_id() -> None:
    cache = cache_of(10, 20, 30)
    assert {after: bases(cache, after) for after in (9, 10, 15, 20, 29, 30, 99)} == {
        9: [10, 20, 30], 10: [20, 30], 15: [20, 30], 20: [30], 29: [30], 30: [], 99: [],
    }  # fmt: skip


def test_a_chunk_holds_what_fits_but_at_least_one_batch() -> None:
    cache = cache_of(1, 2, 3, 4)
    assert [len(bases(cache, 0, limit)) for limit in (0, 1, SIZE, 2 * SIZE - 1, 2 * SIZE, 4 * SIZE)] == [
        1,
        1,
        1,
        1,
        2,
        4,
    ]


def test_a_chunk_of_one_batch_is_not_a_copy() -> None:
    cache = TailCache(10_000)
    data = add(cache, 5)
    chunk = cache.read(KEY, 4, 1)
    assert chunk is not None
    assert chunk.data is data


def test_several_batches_are_joined_in_order() -> None:
    cache = TailCache(10_000)
    parts = [add(cache, base) for base in (1, 2, 3)]
    chunk = cache.read(KEY, 0, 10_000)
    assert chunk is not None
    assert chunk.data == b"".join(parts)


@given(st.lists(st.sampled_from("ab"), max_size=12), st.integers(0, 130), st.integers(1, 10 * SIZE))
def test_refused_batches_are_left_out_and_covered(topics: list[str], after: int, bytes_max: int) -> None:
    cache = TailCache(100 * SIZE)
    cache.begin(KEY, 0)
    for place, topic in enumerate(topics, start=1):
        item = batch(10 * place, topic=topic)
        cache.append(KEY, item.header, item.batch)
    found, position = [], after
    while (chunk := cache.read(KEY, position, bytes_max, lambda _, names: names == b"\x01a")) is not None:
        assert len(chunk.data) == sum(header.length for header in chunk.headers)
        assert chunk.last_id > position
        found += [header.base_id for header in chunk.headers]
        position = chunk.last_id
    assert found == [10 * n for n, topic in enumerate(topics, start=1) if topic == "b" and 10 * n > after]
    assert position == max(after, 10 * len(topics))


def test_for_room_the_oldest_batch_of_any_partition_goes() -> None:
    cache = TailCache(3 * SIZE)
    for base, key in ((1, KEY), (1, OTHER), (2, KEY), (3, KEY)):
        add(cache, base, key)
    assert cache.bytes == 3 * SIZE
    assert not cache.covers(KEY, 0)
    assert bases(cache, 1) == [2, 3]
    assert bases(cache, 0, key=OTHER) == [1]
    add(cache, 4)
    assert not cache.covers(OTHER, 0)
    assert cache.covers(OTHER, 1)


def test_what_was_let_go_is_not_covered_but_the_end_always_is() -> None:
    cache = cache_of(10, 20, 30, bytes_max=SIZE)
    assert [cache.covers(KEY, after) for after in (9, 10, 19, 20, 30)] == [False, False, False, True, True]
    assert cache.read(KEY, 10, 1000) is None


def test_a_batch_larger_than_the_cache_is_not_kept_but_the_end_is_known() -> None:
    cache = cache_of(1, bytes_max=SIZE - 1)
    assert cache.bytes == 0
    assert not cache.covers(KEY, 0)
    assert cache.covers(KEY, 1)


def test_a_dropped_partition_frees_its_bytes_and_is_forgotten() -> None:
    cache = cache_of(1, 2)
    add(cache, 1, OTHER)
    cache.drop(KEY)
    cache.drop(KEY)
    assert cache.bytes == SIZE
    assert not cache.covers(KEY, 2)
    assert bases(cache, 0, key=OTHER) == [1]


def test_ids_that_do_not_rise_are_a_mistake_of_the_caller() -> None:
    cache = cache_of(10)
    with pytest.raises(AssertionError):
        add(cache, 10)


def test_thousands_of_evictions_keep_the_right_end() -> None:
    cache = cache_of(*range(1, 5001), bytes_max=10 * SIZE)
    assert bases(cache, 4990) == list(range(4991, 5001))


class TailMachine(RuleBasedStateMachine):
    """Against a model: a list of all batches per partition, and a list in order of appending."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = TailCache(1000)
        self.held: list[tuple[PartitionKey, int, int]] = []
        self.floors: dict[PartitionKey, int] = {}
        self.last: dict[PartitionKey, int] = {}

    @rule(key=st.sampled_from([KEY, OTHER]), gap=st.integers(1, 5), size=st.integers(0, 400))
    def append(self, key: PartitionKey, gap: int, size: int) -> None:
        base = self.last.get(key, 0) + gap
        item = batch(base, [b"x" * size], key=key)
        self.cache.append(key, item.header, item.batch)
        self.floors.setdefault(key, base - 1)
        self.last[key] = base
        self.held.append((key, base, len(item.batch)))
        while sum(size for _, _, size in self.held) > 1000:
            gone, last, _ = self.held.pop(0)
            self.floors[gone] = last

    @rule(key=st.sampled_from([KEY, OTHER]), begin=st.booleans())
    def forget(self, key: PartitionKey, begin: bool) -> None:
        self.held = [each for each in self.held if each[0] != key]
        self.floors.pop(key, None)
        if begin:
            self.floors[key] = self.last.get(key, 0)
            self.cache.begin(key, self.floors[key])
        else:
            self.cache.drop(key)

    @invariant()
    def the_cache_is_the_model(self) -> None:
        assert self.cache.bytes == sum(size for _, _, size in self.held) <= 1000
        for key in (KEY, OTHER):
            last = self.last.get(key, 0)
            for after in range(max(0, last - 12), last + 2):
                covered = key in self.floors and after >= self.floors[key]
                assert self.cache.covers(key, after) == covered
                expected = [base for each, base, _ in self.held if each == key and base > after] if covered else []
                assert bases(self.cache, after, key=key) == expected


TestTailAgainstItsModel = TailMachine.TestCase


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.integers(1, 2000))
def test_reading_on_and_on_gives_every_batch_once(gaps: list[int], bytes_max: int) -> None:
    cache, base, expected = TailCache(10**6), 0, []
    for gap in gaps:
        base += gap
        expected.append(base)
        add(cache, base)
    seen: list[int] = []
    after = expected[0] - 1
    while (chunk := cache.read(KEY, after, bytes_max)) is not None:
        seen += [header.base_id for header in chunk.headers]
        after = chunk.last_id
    assert seen == expected
