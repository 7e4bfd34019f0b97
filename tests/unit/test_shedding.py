"""What a host gives away: the cases of Hedwig's TestTopicBasedLoadShedder, traffic, and that nothing flaps."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from delivery.cluster.sharing.shedding import AT_ONCE, SETTLE_SECONDS, Held, keep_count, shed
from delivery.metastore.records import HostRecord
from tests.unit.test_placement import host

NOW = 10_000.0


def held(count: int, rate: float = 0.0, *, taken_at: float = 0.0) -> list[Held]:
    return [Held("orders", number, rate, taken_at) for number in range(count)]


def shed_count(own: int, *others: int, mine: list[Held] | None = None) -> int:
    hosts = [host("me", own), *(host(f"h{n}", count) for n, count in enumerate(others))]
    return len(shed("me", hosts, held(own) if mine is None else mine, NOW, Random(1)))


def test_hosts_with_the_same_number_shed_nothing() -> None:
    assert keep_count(10, [10] * 10) == 10
    assert shed_count(10, *[10] * 9) == 0


def test_one_host_above_the_others_sheds_down_to_the_average() -> None:
    """Nine hosts have 10 and one 20: the average is 11."""
    assert keep_count(20, [20, *[10] * 9]) == 11
    assert shed_count(20, *[10] * 9) == 9


@pytest.mark.parametrize(("tolerance", "kept"), [(0.5, 11), (1.0, 20)])
def test_the_tolerance_says_from_when_on_it_sheds_and_not_down_to_what(tolerance: float, kept: int) -> None:
    assert keep_count(20, [20, *[10] * 9], tolerance) == kept


def test_no_more_than_a_few_are_shed_at_once() -> None:
    assert keep_count(1000, [1000, *[0] * 9], at_once=30) == 970
    assert shed_count(1000, *[0] * 9) == AT_ONCE


def test_a_host_alone_sheds_nothing() -> None:
    assert keep_count(20, [20]) == 20
    assert shed_count(20) == 0


def test_in_an_underloaded_cluster_a_host_keeps_one() -> None:
    assert keep_count(1, [1, *[0] * 9]) == 1
    assert keep_count(3, [3, *[0] * 9]) == 1
    assert shed_count(3, *[0] * 9) == 2


def test_a_draining_host_neither_counts_nor_sheds_nor_gets_anything() -> None:
    gone = host("old", 0, draining=True)
    assert shed("me", [host("me", 10), gone], held(10), NOW, Random(1)) == []
    assert shed("me", [host("me", 10, draining=True), host("a")], held(10), NOW, Random(1)) == []
    moves = shed("me", [host("me", 10), gone, host("a")], held(10), NOW, Random(1))
    assert [move.target.host for move in moves] == ["a"] * 5


def test_what_was_just_taken_stays() -> None:
    fresh = held(20, taken_at=NOW - SETTLE_SECONDS + 1)
    assert shed_count(20, 0, mine=fresh) == 0
    assert shed_count(20, 0, mine=[*held(3), *fresh[3:]]) == 3


def test_what_is_shed_goes_to_the_least_loaded_hosts_evenly() -> None:
    moves = shed("me", [host("me", 12), host("a", 2), host("b", 4)], held(12), NOW, Random(1))
    assert sorted(move.target.host for move in moves) == ["a", "a", "a", "a", "b", "b"]


def test_a_host_with_far_more_traffic_sheds_busy_partitions_to_the_quietest() -> None:
    mine = held(100, 500.0)
    hosts = [host("me", 100, 50_000.0), host("a", 100, 40_000.0), host("quiet", 100, 6_000.0)]
    moves = shed("me", hosts, mine, NOW, Random(1))
    assert {move.target.host for move in moves} == {"quiet"}
    assert len(moves) == AT_ONCE


def test_traffic_is_shed_no_further_than_the_number_of_partitions_allows() -> None:
    """Else the receiver would shed them by number, and the two rules would go on for ever."""
    hosts = [host("me", 6, 12_000.0), host("quiet", 6, 0.0)]
    assert len(shed("me", hosts, held(6, 2_000.0), NOW, Random(1))) == 1
    hosts = [host("me", 6, 12_000.0), host("quiet", 8, 0.0)]
    assert shed("me", hosts, held(6, 2_000.0), NOW, Random(1)) == []


def test_the_one_busy_partition_is_not_carried_from_host_to_host() -> None:
    mine = [Held("orders", 0, 50_000.0, 0.0), *held(6)[1:]]
    assert shed("me", [host("me", 6, 50_000.0), host("a", 6)], mine, NOW, Random(1)) == []


def test_small_traffic_may_lie_anywhere() -> None:
    assert shed("me", [host("me", 4, 1_500.0), host("a", 4)], held(4, 375.0), NOW, Random(1)) == []


@given(st.lists(st.lists(st.floats(0, 20_000), max_size=30), min_size=2, max_size=5), st.integers())
def test_shedding_comes_to_rest(rates: list[list[float]], seed: int) -> None:
    """Whoever starts with what: hosts that shed in turn, each from fresh loads, soon have nothing more to shed."""
    random = Random(seed)
    names = [f"h{number}" for number in range(len(rates))]
    owned = {
        name: [Held("orders", 100 * number + n, rate, 0.0) for n, rate in enumerate(found)]
        for number, (name, found) in enumerate(zip(names, rates, strict=True))
    }

    def records() -> list[HostRecord]:
        return [host(name, len(mine), sum(one.messages_per_second for one in mine)) for name, mine in owned.items()]

    for _ in range(60):
        moved = 0
        for name in names:
            for move in shed(name, records(), owned[name], NOW, random):
                owned[name].remove(move.held)
                owned[move.target.host].append(move.held)
                moved += 1
        if not moved:
            break
    else:
        pytest.fail("it never comes to rest")
    counts = [len(mine) for mine in owned.values()]
    assert max(counts) <= -(-sum(counts) * 11 // (10 * len(counts))) or max(counts) <= 1
