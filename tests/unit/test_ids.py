"""Message ids: arithmetic that rises whatever the clock does, and a text form that is read strictly."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from delivery.errors import ClockWrong, InvalidRequest
from delivery.ids import CLOCK_AHEAD_MS_MAX, ID_MAX, SEQUENCES_PER_MS, IdClock, MessageId, first_id_at

NOW = 1_732_165_000_000
runs = st.tuples(st.integers(1, 65536), st.integers(-600_000, 600_000))


def taken(clock: IdClock, count: int, now_ms: int) -> range:
    base = clock.take(count, now_ms)
    return range(base, base + count)


@given(st.lists(runs, min_size=1, max_size=30))
def test_ids_rise_strictly_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    """Ten minutes back or forth between any two batches."""
    clock, last = IdClock(0), 0
    for count, step in steps:
        run = taken(clock, count, NOW + step)
        assert run[0] > last
        assert clock.last == run[-1]
        last = run[-1]


@given(st.lists(runs, min_size=2, max_size=10), st.data())
def test_ids_rise_over_a_restart_on_a_slower_clock(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """The successor knows the last id from the store and nothing else."""
    cut = data.draw(st.integers(1, len(steps) - 1))
    first = IdClock(0)
    before = [taken(first, count, NOW + step) for count, step in steps[:cut]]
    second = IdClock(first.last)
    after = [taken(second, count, NOW - 60_000 + step) for count, step in steps[cut:]]
    assert after[0][0] > before[-1][-1]


@given(st.integers(0, 2**40), st.integers(1, 65536))
def test_an_id_tells_when_it_was_given_out(now_ms: int, count: int) -> None:
    run = taken(IdClock(0), count, now_ms)
    assert MessageId(run[0]).timestamp_ms == now_ms
    assert MessageId(run[-1]).timestamp_ms <= now_ms + count // SEQUENCES_PER_MS


@pytest.mark.parametrize("counts", [[70_000], [35_000, 35_000], [1000] * 70, [32_767, 1, 1]])
def test_a_full_millisecond_spills_into_the_next(counts: list[int]) -> None:
    """With a clock that stands still: no id twice, none lower, byte order is number order."""
    clock = IdClock(0)
    ids = [number for count in counts for number in taken(clock, count, NOW)]
    assert ids == sorted(set(ids))
    assert [number.to_bytes(8, "big") for number in ids] == sorted(number.to_bytes(8, "big") for number in ids)
    assert MessageId(ids[-1]).timestamp_ms - NOW == (sum(counts) - 1) // SEQUENCES_PER_MS


def test_a_clock_far_behind_the_stored_ids_is_refused_and_nothing_is_given_out() -> None:
    clock = IdClock(first_id_at(NOW))
    with pytest.raises(ClockWrong, match="after this machine's clock"):
        clock.take(1, NOW - CLOCK_AHEAD_MS_MAX - 1)
    assert clock.last == first_id_at(NOW)
    assert clock.take(1, NOW - CLOCK_AHEAD_MS_MAX + 1) == first_id_at(NOW) + 1


def test_ids_end_before_arithmetic_on_them_overflows() -> None:
    clock = IdClock(ID_MAX - 1)
    with pytest.raises(ClockWrong, match="beyond the largest id"):
        clock.take(2, ID_MAX // SEQUENCES_PER_MS)
    assert clock.last == ID_MAX - 1


@given(st.integers(0, ID_MAX))
def test_the_text_of_an_id_reads_back(number: int) -> None:
    one = MessageId(number)
    assert MessageId.parse(str(one)) == MessageId.parse(str(number)) == one
    assert MessageId.of(one.timestamp_ms, one.sequence) == one
    assert first_id_at(one.timestamp_ms) <= one < first_id_at(one.timestamp_ms + 1)


MALFORMED = (
    "", " ", "-", "1-", "-1", "1-2-3", "1.5", "0x10", "1e3", "12 ", " 12", "12\n", "1-32768", "1-99999", "٣-١", "abc",
    "1" * 20, str(2**62), f"{2**47}-0", "9" * 15 + "-0", "1_000", "+1", "1-+2", "\0", "1-2\n",
)  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(InvalidRequest):
        MessageId.parse(text)


@given(st.text())
def test_a_text_is_an_id_or_invalid(text: str) -> None:
    with suppress(InvalidRequest):
        assert 0 <= MessageId.parse(text) <= ID_MAX


@pytest.mark.parametrize(("timestamp", "sequence"), [(-1, 0), (0, -1), (0, 32768)])
def test_an_id_outside_its_ranges_cannot_be_made(timestamp: int, sequence: int) -> None:
    with pytest.raises(InvalidRequest):
        MessageId.of(timestamp, sequence)


def test_an_id_shows_its_time_in_utc() -> None:
    one = MessageId.of(NOW, 12)
    assert str(one) == "1732165000000-12"
    assert one.time.isoformat() == "2024-11-21T04:56:40+00:00"
