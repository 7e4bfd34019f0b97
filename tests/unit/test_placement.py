"""Which host gets a partition: the least loaded one, hysteresis, and the order in which survivors take over."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, strategies as st

from delivery.cluster.sharing.placement import NEAR, before, choose, has_clearly_less
from delivery.metastore.records import HostRecord


def host(name: str, partitions: int = 0, rate: float = 0.0, *, draining: bool = False) -> HostRecord:
    return HostRecord(name, "127.0.0.1", 7000, None, 1, "1", 0, partitions, rate, 0.0, draining)


LOADS = st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=8)


def test_without_a_host_that_takes_anything_nobody_is_chosen() -> None:
    assert choose([], {}, Random(1)) is None
    assert choose([host("a", draining=True)], {}, Random(1)) is None


@given(LOADS, st.integers())
def test_the_chosen_host_is_not_draining_and_has_the_fewest_partitions(
    loads: list[tuple[int, bool]], seed: int
) -> None:
    hosts = [host(f"h{n}", count, draining=draining) for n, (count, draining) in enumerate(loads)]
    chosen = choose(hosts, {}, Random(seed))
    able = [one.partitions for one in hosts if not one.draining]
    assert (chosen is None) == (not able)
    if chosen is not None:
        assert not chosen.draining
        assert chosen.partitions == min(able)


def test_ties_are_settled_at_random_among_quiet_hosts() -> None:
    hosts = [host("a"), host("b"), host("busy", 0, 50_000.0)]
    found = {choose(hosts, {}, Random(seed)) for seed in range(50)}
    assert found == {hosts[0], hosts[1]}


def test_partitions_given_since_a_host_told_of_its_load_count() -> None:
    hosts, pending = [host("a", 3), host("b", 3), host("c", 4)], Counter[str]()
    for _ in range(11):
        chosen = choose(hosts, pending, Random(2))
        assert chosen is not None
        pending[chosen.host] += 1
    assert sorted(one.partitions + pending[one.host] for one in hosts) == [7, 7, 7]


def test_near_equal_hosts_keep_what_they_are_asked_for() -> None:
    assert not has_clearly_less(0, 0)
    assert not has_clearly_less(0, NEAR)
    assert has_clearly_less(0, NEAR + 1)
    assert not has_clearly_less(90, 99)
    assert not has_clearly_less(95, 100)
    assert has_clearly_less(89, 100)


@given(st.integers(0, 200), st.integers(0, 200))
def test_two_hosts_never_send_each_other_the_same_partition(mine: int, theirs: int) -> None:
    """Not even when the receiver counts what it has just got."""
    if has_clearly_less(theirs, mine):
        assert not has_clearly_less(mine, theirs + 1)


@given(LOADS, st.integers(0, 32_766))
def test_all_hosts_agree_on_the_order_of_taking_over(loads: list[tuple[int, bool]], partition: int) -> None:
    hosts = [host(f"h{n}", draining=draining) for n, (_, draining) in enumerate(loads)]
    able = [one.host for one in hosts if not one.draining]
    assert sorted(len(before("orders", partition, name, hosts)) for name in able) == list(range(len(able)))


def test_a_dead_hosts_partitions_fall_to_all_survivors_and_nothing_else_changes_its_place() -> None:
    hosts = [host(f"h{n}") for n in range(5)]
    survivors = hosts[1:]

    def first(partition: int, among: list[HostRecord]) -> str:
        return next(one.host for one in among if not before("orders", partition, one.host, among))

    then = {partition: first(partition, hosts) for partition in range(2000)}
    now = {partition: first(partition, survivors) for partition in range(2000)}
    assert all(now[p] == then[p] for p in then if then[p] != "h0")
    heirs = Counter(now[p] for p in then if then[p] == "h0")
    share = sum(heirs.values()) / len(survivors)
    assert set(heirs) == {one.host for one in survivors}
    assert all(0.6 * share < count < 1.4 * share for count in heirs.values())
