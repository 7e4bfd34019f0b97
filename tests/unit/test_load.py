"""How busy a host is, and what of it is worth telling."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from delivery.cluster.load import AVERAGED_SECONDS, Load, Traffic


def test_a_rate_comes_near_steady_traffic_and_fades_without_any() -> None:
    traffic, now = Traffic(0.0), 0.0
    for _ in range(30):
        now += 2.0
        traffic.add(2_000, 200_000)
        traffic.follow(now)
    assert traffic.messages_per_second == pytest.approx(1_000, rel=0.01)
    assert traffic.bytes_per_second == pytest.approx(100_000, rel=0.01)
    traffic.follow(now + AVERAGED_SECONDS)
    assert 300 < traffic.messages_per_second < 400
    traffic.follow(now + 30 * AVERAGED_SECONDS)
    assert traffic.messages_per_second < 1


def test_it_is_busy_from_the_first_message_on_until_there_is_less_than_one_a_second() -> None:
    traffic = Traffic(0.0)
    seen = [traffic.busy]
    traffic.add(100, 1)
    seen.append(traffic.busy)
    for now in (1.0, 1.0 + 10 * AVERAGED_SECONDS):
        traffic.follow(now)
        seen.append(traffic.busy)
    assert seen == [False, True, True, False]


@given(st.lists(st.tuples(st.integers(0, 10**6), st.just(0.0) | st.floats(0.01, 100)), max_size=50))
def test_rates_are_never_negative_nor_above_the_highest_burst(steps: list[tuple[int, float]]) -> None:
    traffic, now, highest = Traffic(0.0), 0.0, 0.0
    pending = 0
    for messages, passed in steps:
        traffic.add(messages, messages)
        pending += messages
        now += passed
        before = traffic.messages_per_second
        traffic.follow(now)
        if passed >= 0.01:
            highest = max(highest, pending / passed)
            pending = 0
        assert 0 <= traffic.messages_per_second <= max(highest, before) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("load", "differs"),
    [
        (Load(10, 1_000.0, 1e6), False),
        (Load(11, 1_000.0, 1e6), True),
        (Load(10, 1_000.0, 1e6, draining=True), True),
        (Load(10, 1_150.0, 1.15e6), False),
        (Load(10, 1_400.0, 1e6), True),
        (Load(10, 1_000.0, 2e6), True),
        (Load(10, 0.0, 1e6), True),
    ],
)
def test_what_is_told_is_another_number_of_partitions_or_a_rate_that_changed_by_a_fifth(
    load: Load, differs: bool
) -> None:
    assert load.differs(Load(10, 1_000.0, 1e6)) is differs


def test_small_traffic_is_noise() -> None:
    assert not Load(1, 90.0, 100_000.0).differs(Load(1))
