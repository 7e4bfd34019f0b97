"""The start "latest-per-key": the newest message of each key in order, then everything."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from delivery.batch import Row, encode, peek, stamp
from delivery.dispatch import newest
from delivery.dispatch.newest import NewestSource, Survey
from delivery.filters import Filter, Topics
from tests.dispatch import ScriptedPartition
from tests.unit.scanning import chunk_of, ids_in, scan

Keys = list[bytes | None]


def batch(base: int, keys: Keys, topic: str = "a") -> bytes:
    """A stored batch with a message for each key."""
    rows: list[Row] = [(b"x", key, topic, b"") for key in keys]
    data = encode(rows, 0)
    header = peek(data)
    assert header is not None
    return stamp(header, data, base, 1)[1]


def stored(groups: list[Keys]) -> tuple[list[bytes], dict[int, bytes | None]]:
    """Batches of these keys, and the key of each id."""
    batches: list[bytes] = []
    keys: dict[int, bytes | None] = {}
    base = 1
    for group in groups:
        batches.append(batch(base, group))
        keys.update(enumerate(group, base))
        base += len(group) + 3
    return batches, keys


def newest_of(keys: dict[int, bytes | None], after: int, until: int) -> list[int]:
    """What is to be delivered of a stretch: told plainly."""
    last = {key: number for number, key in keys.items() if number <= until}
    return [
        number for number, key in keys.items() if after < number <= until and (key is None or last[key] == number)
    ]  # fmt: skip


groups = st.lists(
    st.lists(st.sampled_from([b"a", b"b", b"c", b"d", None]), min_size=1, max_size=6), min_size=1, max_size=8
)  # fmt: skip


@given(groups=groups, until=st.integers(0, 60), after=st.integers(0, 30), bytes_max=st.sampled_from([1, 300, 10**6]))
def test_up_to_the_end_of_then_only_the_newest_of_each_key_comes_and_behind_it_everything(
    groups: list[Keys], until: int, after: int, bytes_max: int
) -> None:
    """`after` is where a worker begins: one that took over goes on as the one before it would have.

    What a batch holds up to the position is read once more, and the subscriber skips it.
    """
    batches, keys = stored(groups)
    until, after = min(until, max(keys)), min(after, max(keys) - 1)
    source = NewestSource(ScriptedPartition(batches), None, until)
    pieces = scan(source, None, after, goal=max(keys), bytes_max=bytes_max)
    positions = [after, *(position for _, position, _ in pieces)]
    found = [
        number for before, (_, _, ids) in zip(positions, pieces, strict=False) for number in ids if number > before
    ]
    assert found == [*newest_of(keys, after, until), *[one for one in keys if one > max(after, until)]]
    assert positions == sorted(positions)
    assert positions[-1] >= max(keys), "the position comes to the end, whatever was left out"


@given(groups=groups, keys_max=st.integers(1, 3))
def test_where_there_are_more_keys_than_fit_the_newest_still_come_and_in_order(
    groups: list[Keys], keys_max: int
) -> None:
    batches, keys = stored(groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest.Survey.__init__, "__defaults__", (keys_max, 10**6))
        pieces = scan(NewestSource(ScriptedPartition(batches), None, max(keys)), goal=max(keys))
    found = [number for _, _, ids in pieces for number in ids]
    assert set(newest_of(keys, 0, max(keys))) <= set(found)
    assert found == sorted(set(found))


def test_a_stretch_ends_where_the_keys_that_fit_do() -> None:
    survey = Survey(0, None, keys_max=2)
    chunk = chunk_of([batch(1, [b"a", b"b"]), batch(5, [b"a"])])
    survey.note(chunk, 100)
    assert (survey.is_full, survey.end) == (True, 2)
    assert ids_in(survey.newest(chunk, 0).data) == [1, 2]
    long = Survey(0, None, keys_max=100, key_bytes_max=10)
    long.note(chunk_of([batch(1, [b"x" * 11])]), 100)
    assert long.is_full


def test_the_newest_is_the_newest_of_what_the_subscription_takes() -> None:
    batches = [batch(1, [b"k"], "a"), batch(5, [b"k"], "b")]
    wanted = Filter(Topics(("a",)))
    pieces = scan(NewestSource(ScriptedPartition(batches), wanted, 5), wanted, goal=5)
    assert [ids for _, _, ids in pieces if ids] == [[1]]


def test_a_damaged_batch_comes_whole_for_its_listener_to_tell() -> None:
    damaged = bytearray(batch(5, [b"k", b"k"]))
    damaged[-1] ^= 1
    chunk = chunk_of([batch(1, [b"k"]), bytes(damaged)])
    survey = Survey(0, None)
    survey.note(chunk, 6)
    assert survey.newest(chunk, 0).data == chunk.data
