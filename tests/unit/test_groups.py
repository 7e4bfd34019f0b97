"""How the partitions of a group are spread over its members."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from delivery.errors import InvalidRequest
from delivery.metastore.groups import KINDS, assign, check_kind, fits

MEMBERS = st.sets(st.sampled_from("abcdefgh"), min_size=1)
PARTITIONS = st.sets(st.integers(0, 40), min_size=1)
HELD = st.dictionaries(st.sampled_from("abcdefghxyz"), st.sets(st.integers(0, 40)).map(lambda one: tuple(sorted(one))))
"""What was held before: by members that are gone, too, and by several at once."""


def moved(before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]) -> int:
    """How many partitions are with another member now."""
    holder = {partition: name for name, those in before.items() for partition in those}
    return sum(holder.get(partition) != name for name, those in after.items() for partition in those)


@given(MEMBERS, PARTITIONS, HELD)
def test_every_partition_has_exactly_one_member_and_the_shares_are_even(
    members: set[str], partitions: set[int], before: dict[str, tuple[int, ...]]
) -> None:  # fmt: skip
    held = assign("shared", members, partitions, before)
    assert fits(held, members, partitions)
    counts = [len(those) for those in held.values()]
    assert max(counts) - min(counts) <= 1


@given(MEMBERS, PARTITIONS, st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_no_partition_moves_but_for_an_even_share(members: set[str], partitions: set[int], others: set[str]) -> None:
    before = assign("shared", members, partitions, {})
    after = assign("shared", others, partitions, before)
    share, larger = divmod(len(partitions), len(others))
    kept = sorted((len(before.get(name, ())) for name in others), reverse=True)
    needed = len(partitions) - sum(min(count, share + (place < larger)) for place, count in enumerate(kept))
    assert moved(before, after) == needed, "as many as anybody would have to move"


@given(MEMBERS, PARTITIONS)
def test_nothing_moves_while_nobody_comes_or_goes(members: set[str], partitions: set[int]) -> None:
    held = assign("shared", members, partitions, {})
    assert assign("shared", members, partitions, held) == held


@given(MEMBERS, PARTITIONS, HELD)
def test_all_hosts_find_the_same(members: set[str], partitions: set[int], before: dict[str, tuple[int, ...]]) -> None:
    backwards = dict(reversed(before.items()))
    again = assign("shared", sorted(members, reverse=True), sorted(partitions, reverse=True), backwards)
    assert assign("shared", members, partitions, before) == again


@given(MEMBERS, PARTITIONS, HELD)
def test_with_failover_one_has_everything(
    members: set[str], partitions: set[int], before: dict[str, tuple[int, ...]]
) -> None:  # fmt: skip
    held = assign("failover", members, partitions, before)
    assert fits(held, members, partitions)
    assert sorted(map(len, held.values())) == [0] * (len(members) - 1) + [len(partitions)]


def test_the_active_member_stays_so_and_the_first_by_name_follows_it() -> None:
    held = assign("failover", ["b"], [0, 1], {})
    held = assign("failover", ["a", "b", "c"], [0, 1], held)
    assert held == {"a": (), "b": (0, 1), "c": ()}, "who comes takes nothing over"
    assert assign("failover", ["c", "a"], [0, 1], held) == {"a": (0, 1), "c": ()}


def test_one_who_comes_gets_its_share_and_one_who_goes_leaves_it_to_the_others() -> None:
    held = assign("shared", ["a", "b"], range(6), {})
    assert held == {"a": (0, 1, 2), "b": (3, 4, 5)}
    held = assign("shared", ["a", "b", "c"], range(6), held)
    assert held == {"a": (0, 1), "b": (3, 4), "c": (2, 5)}
    assert assign("shared", ["b", "c"], range(6), held) == {"b": (0, 3, 4), "c": (1, 2, 5)}


def test_a_kind_that_there_is_not_is_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidRequest, match="exclusive, failover, shared, key_shared"):
        check_kind("broadcast")
    assert [check_kind(kind) for kind in KINDS] == ["exclusive", "failover", "shared", "key_shared"]
