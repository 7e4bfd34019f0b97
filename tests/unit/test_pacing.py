"""Replays on the host: what ends where, what is due when, and a scanner that is given no more than that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, strategies as st

from delivery.batch import Row, encode, headers_in, open_batch, peek, stamp
from delivery.batch.pick import pick
from delivery.dispatch.pacing import Pace, ReplaySource, cut, next_id
from delivery.errors import InvalidRequest
from delivery.filters import Filter, Topics
from delivery.ids import ID_MAX, MessageId
from delivery.metastore.replays import MAX, Replay, check_speed, wrong_in_replay
from tests.dispatch import ScriptedPartition, batch_at
from tests.unit.scanning import Found, chunk_of, ids_in, scan


def sparse(ids: Sequence[int]) -> bytes:
    """A batch with just these ids."""
    rows: list[Row] = [(b"%d" % number, None, "", b"") for number in range(ids[-1] - ids[0] + 1)]
    data = encode(rows, 0)
    header = peek(data)
    assert header is not None
    return pick(open_batch(stamp(header, data, ids[0], 1)[1]), ids)


# -- what is cut


@given(
    cuts=st.lists(st.lists(st.booleans(), min_size=1, max_size=6).filter(any), min_size=1, max_size=5),
    after=st.integers(0, 35), last=st.integers(0, 35),
)  # fmt: skip
def test_a_cut_has_what_lies_between_and_nothing_beyond(cuts: list[list[bool]], after: int, last: int) -> None:
    """`cuts` are batches: which of the ids that follow one another they hold."""
    batches, at = [], 1
    for held in cuts:
        batches.append(sparse([at + place for place, there in enumerate(held) if there]))
        at += len(held)
    chunk = chunk_of(batches)
    everything = ids_in(chunk.data)
    part = cut(chunk, after, last)
    found = ids_in(part.data)
    assert [number for number in found if number > after] == [one for one in everything if after < one <= last]
    assert tuple(header for _, header in headers_in(part.data)) == part.headers
    if part.headers:
        assert after < part.last_id <= last
    else:
        assert part.last_id == min(last, chunk.last_id)
    assert next_id(chunk, after) == next((one for one in everything if one > after), None)


def test_a_damaged_batch_stays_whole_for_its_listener_to_tell() -> None:
    damaged = bytearray(batch_at(10, "a", "a", "a"))
    damaged[-1] ^= 1
    chunk = chunk_of([bytes(damaged)])
    assert cut(chunk, 10, 11).data == bytes(damaged)
    assert next_id(chunk, 10) == 11


# -- what is due


@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 10.0), (2.0, 5.0), (0.5, 20.0), (MAX, 0.0)])
def test_a_message_is_due_when_its_time_has_passed_at_the_speed(speed: float, seconds: float) -> None:
    pace, start = Pace(speed, MessageId.of(1_000)), MessageId.of(11_000, 5)
    assert pace.wait(MessageId.of(1_000, 3), 100.0) == 0
    assert pace.wait(start, 100.0) == pytest.approx(seconds)
    assert pace.wait(start, 100.0 + seconds) == 0
    assert pace.due(start, 100.0 + seconds + 0.001) >= start


def test_time_runs_from_the_first_look_and_without_a_place_from_the_first_message() -> None:
    pace = Pace(1.0, 0)
    assert pace.wait(MessageId.of(5_000), 70.0) == 0
    assert pace.wait(MessageId.of(8_000), 71.0) == pytest.approx(2.0)
    assert Pace(MAX, 0).due(1, 0.0) == ID_MAX


@given(
    st.floats(0.001, 1000), st.lists(st.integers(0, 10**7), min_size=1, max_size=20).map(sorted)
)  # fmt: skip
def test_who_waits_as_told_sees_each_message_at_its_time_and_in_order(speed: float, times: list[int]) -> None:
    pace, now = Pace(speed, MessageId.of(1)), 50.0
    for time_ms in times:
        first = MessageId.of(1 + time_ms)
        now += pace.wait(first, now)
        assert now - 50.0 >= time_ms / 1000 / speed - 0.001 / speed - 1e-6, "not before its time"
        assert now - 50.0 <= time_ms / 1000 / speed + 0.001 / speed + 1e-6, "nor much later"


# -- through a scanner


def replay(
    batches: list[bytes], until: int, pace: Pace, wanted: Filter | None = None, after: int = 0
) -> list[Found]:  # fmt: skip
    return scan(ReplaySource(ScriptedPartition(batches), until, pace), wanted, after)


def at(second: float, count: int = 1, topic: str = "a") -> bytes:
    return batch_at(MessageId.of(1_000_000 + int(second * 1000)), *[topic] * count)


def second_of(number: int) -> float:
    return (MessageId(number).timestamp_ms - 1_000_000) / 1000


def test_a_replay_has_the_pace_of_its_messages_batch_by_batch_and_ends() -> None:
    start = MessageId.of(1_000_000) - 1
    until = MessageId.of(1_000_000 + 7_000, 1)
    pieces = replay([at(0), at(2, 3), at(7, 4), at(9)], until, Pace(2.0, start), after=start)
    assert [(when, [second_of(one) for one in ids]) for when, _, ids in pieces] == [
        (0.0, [0.0]), (1.0, [2.0] * 3), (3.5, [7.0] * 2)
    ]  # fmt: skip
    assert pieces[-1][1] == until


def test_without_a_pace_all_comes_at_once_up_to_the_end_and_nothing_that_is_new() -> None:
    until = int(MessageId.of(1_000_000 + 5_000))
    pieces = replay([at(0), at(3), at(9)], until, Pace(MAX, 0))
    assert [(when, len(ids)) for when, _, ids in pieces] == [(0.0, 2), (0.0, 0)]
    assert pieces[-1][1] == until, "the position ends where the replay does, though no message is there"


def test_what_a_filter_refuses_is_not_waited_for_at_the_end_and_the_position_ends_all_the_same() -> None:
    until = int(MessageId.of(1_000_000 + 9_000))
    wanted = Filter(Topics(("a",)))
    pieces = replay([at(0), at(3, topic="b"), at(9, topic="b")], until, Pace(MAX, 0), wanted)
    assert [ids for _, _, ids in pieces if ids] == [ids_in(at(0))]
    assert pieces[-1][1] == until


def test_a_replay_of_which_retention_dropped_the_rest_is_over() -> None:
    pieces = replay([], 500, Pace(1.0, 10), after=10)
    assert [(when, position) for when, position, _ in pieces] == [(0.0, 500)]


def test_a_batch_of_many_times_is_given_bit_by_bit() -> None:
    ids = [MessageId.of(1_000_000 + second * 1000) for second in (0, 1, 3)]
    whole = sparse_of_times(ids)
    pieces = replay([whole], ids[-1], Pace(1.0, ids[0] - 1), after=ids[0] - 1)
    assert [(when, numbers) for when, _, numbers in pieces if numbers] == [
        (0.0, [ids[0]]),
        (1.0, [ids[1]]),
        (3.0, [ids[2]]),
    ]


def sparse_of_times(ids: Sequence[int]) -> bytes:
    """As `sparse`, for ids that lie far apart."""
    from delivery.batch.encode import Columns, assemble

    columns = Columns(
        [""] * len(ids), [None] * len(ids), [b""] * len(ids), [b"x"] * len(ids), [one - ids[0] for one in ids]
    )
    return assemble(
        columns, 0, base_id=ids[0], epoch=1, producer_id=0, producer_sequence=0, span=ids[-1] - ids[0] + 1
    )  # fmt: skip


# -- what cannot be


@pytest.mark.parametrize("speed", ["fast", "2", 0, -1, 1e9, float("nan"), True, None])
def test_speeds_that_cannot_be_are_refused(speed: object) -> None:
    with pytest.raises(InvalidRequest, match="is no speed"):
        check_speed(speed)


def test_speeds_have_words_and_numbers() -> None:
    told: Callable[[object], float] = check_speed
    assert [told(one) for one in ("max", "original", 2, 0.5)] == [MAX, 1.0, 2.0, 0.5]


def test_records_that_cannot_be_are_told() -> None:
    assert wrong_in_replay(Replay("s", {0: 5}, 2.0)) == ""
    assert "speed" in wrong_in_replay(Replay("s", {0: 5}, -1.0))
    assert "until" in wrong_in_replay(Replay("s", {0: -5}))
