"""How many callbacks run at the same time where nobody says so: as many as get more done."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from subscriber.staff import AUTO_MAX, Staff

Takes = Callable[[int], float]
"""How long a callback takes, beside so many others and itself."""


def played(
    takes: Takes, seconds: float, wanted: int = 1000, staff: Staff | None = None, messages: int = 1
) -> list[int]:
    """The sizes of a staff over so long, at each callback that ends; there are always `wanted` of them to do."""
    staff = staff or Staff()
    now, running, sizes = 0.0, list[tuple[float, float]](), list[int]()
    while now < seconds:
        while len(running) < min(staff.size, wanted):
            heapq.heappush(running, (now + takes(min(staff.size, wanted)), now))
        now, began = heapq.heappop(running)
        staff.worked(messages, began, now, wanted)
        sizes.append(staff.size)
    return sizes


def usual(sizes: list[int]) -> float:
    """Over the second half, which is when it should know."""
    half = sizes[len(sizes) // 2 :]
    return sum(half) / len(half)


@given(st.floats(0.05, 5), st.integers(1, 200))
@settings(max_examples=15, deadline=None)
def test_callbacks_that_wait_are_as_many_as_there_is_work_for(each: float, wanted: int) -> None:
    sizes = played(lambda _: each, 60 * each, wanted)
    assert usual(sizes) >= 0.8 * min(wanted, AUTO_MAX)
    assert max(sizes) <= min(wanted, AUTO_MAX)


@given(st.floats(0.02, 1), st.integers(1, 100_000))
@settings(max_examples=15, deadline=None)
def test_callbacks_that_compute_run_one_at_a_time_but_for_a_try_now_and_then(each: float, messages: int) -> None:
    assert usual(played(lambda size: each * size, 600 * each, messages=messages)) < 1.5


@pytest.mark.parametrize("room", [3, 8, 20])
def test_there_are_about_as_many_as_what_they_wait_for_serves_at_the_same_time(room: int) -> None:
    found = usual(played(lambda size: 0.1 * max(1.0, size / room), 60.0))
    assert room / 2 <= found <= room * 2


def test_it_follows_callbacks_that_become_others() -> None:
    staff = Staff()
    assert usual(played(lambda size: 0.02 * size, 20.0, staff=staff)) < 1.5
    staff._since = -1.0  # the next story begins at 0 again
    assert usual(played(lambda _: 0.5, 30.0, staff=staff)) > AUTO_MAX * 0.8
    staff._since = -1.0
    assert usual(played(lambda size: 0.02 * size, 60.0, staff=staff)) < 2


def test_where_less_is_to_be_done_there_are_fewer_of_them() -> None:
    staff = Staff()
    played(lambda _: 0.05, 20.0, staff=staff)
    staff._since = -1.0
    assert set(played(lambda _: 0.05, 20.0, wanted=3, staff=staff)[-20:]) == {3}


@given(st.integers(1, 300), st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_whatever_happens_there_is_at_least_one_and_never_more_than_allowed(most: int, seed: int) -> None:
    random, staff, now = Random(seed), Staff(most), 0.0
    for _ in range(500):
        began = now - random.choice([0.0, 1e-9, 0.001, 1.0, 100.0])
        now += random.choice([0.0, 0.001, 1.0])
        staff.worked(random.choice([0, 1, 1000]), min(began, now), now, random.choice([0, 1, 5, 1000]))
        assert 1 <= staff.size <= most
