"""Who has what of a partition that members share by key, and how far each is."""

from __future__ import annotations

from random import Random

import pytest

from delivery.dispatch.shares import Lane, Shares
from delivery.metastore.managers.records import Attempts, ParkedKey, Share, SubscriptionState, check_state
from delivery.metastore.slots import ALL, SLOTS, as_ranges, in_ranges, slot_of_key


def holders(shares: Shares) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for one in shares.saved():
        found.setdefault(one.member, set()).update(in_ranges(one.slots))
    return found


def settled(shares: Shares, members: set[str]) -> None:
    """All that is to move has moved, and is saved."""
    shares.want(members)
    shares.hand_over_all_but(members)
    for name in members:
        shares.hand_over(name)
    shares.keep(shares.saved())


def begun(shares: Shares, member: str) -> Lane:
    lane = shares.begin(member)
    assert lane is not None
    return lane


def state(shares: Shares) -> SubscriptionState:
    return SubscriptionState(shares.position, 1, "g", 1, parked=shares.parked, shares=shares.saved())


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_even_and_nothing_moves_but_to_who_comes_and_from_who_goes(seed: int) -> None:
    dice, shares, members = Random(seed), Shares([], 0, ()), {"a"}
    settled(shares, members)
    for _ in range(12):
        before = holders(shares)
        free = sorted(set("abcdefgh") - members)
        members = members ^ {dice.choice(free if len(members) == 1 else [*free, *sorted(members)])}
        settled(shares, members)
        after = holders(shares)
        assert set().union(*after.values()) == ALL
        assert sum(map(len, after.values())) == SLOTS
        counts = [len(slots) for slots in after.values()]
        assert max(counts) - min(counts) <= 1
        for name in before.keys() & after.keys():
            assert after[name] >= before[name] or after[name] <= before[name], "nobody exchanges anything"
        assert check_state(state(shares)) is None


def test_many_comings_and_goings_leave_what_a_state_can_hold() -> None:
    dice, shares, members = Random(1), Shares([], 0, ()), set("abcdefgh")
    for _ in range(60):
        settled(shares, members)
        members = members ^ {dice.choice("abcdefghijklmnop")} or {"a"}
    assert sum(len(one.slots) for one in shares.saved()) < 600


def test_slots_stay_where_they_are_until_they_are_handed_over() -> None:
    shares = Shares([], 10, ())
    settled(shares, {"a"})
    shares.want({"a", "b"})
    assert holders(shares) == {"a": set(ALL)}
    assert (shares.has_surplus("a"), shares.has_news("b"), shares.begin("b")) == (True, False, None)
    shares.hand_over("a")
    assert {name: len(slots) for name, slots in holders(shares).items()} == {"a": SLOTS / 2, "b": SLOTS / 2}
    assert not shares.are_kept
    assert (shares.has_news("b"), shares.begin("b")) == (False, None), "nobody would ask b for it"
    shares.keep(shares.saved())
    assert (shares.are_kept, shares.has_news("b")) == (True, True)
    begun(shares, "b")
    assert not shares.has_news("b")


def test_the_position_is_that_of_the_part_that_is_furthest_behind() -> None:
    shares = Shares([], 10, ())
    settled(shares, {"a", "b"})
    a, b = begun(shares, "a"), begun(shares, "b")
    shares.note(a, 50)
    assert shares.position == 10
    shares.note(b, 30)
    assert (shares.position, a.position, b.position) == (30, 50, 30)
    shares.note(b, 20)
    assert shares.position == 30, "it never goes back"


def test_who_gets_slots_goes_on_with_them_where_they_are() -> None:
    shares = Shares([], 10, ())
    settled(shares, {"a", "b"})
    a, b = begun(shares, "a"), begun(shares, "b")
    shares.note(a, 50)
    shares.note(b, 30)
    shares.note_failing(a, Attempts(50, failures=2))
    shares.end(a)
    shares.end(b)
    settled(shares, {"b"})
    lane = begun(shares, "b")
    assert {part.position: part.slots for part in lane.parts} == {50: a.slots, 30: b.slots}
    assert (lane.position, lane.failing) == (30, Attempts(50, failures=2))
    shares.note(lane, 40)
    assert sorted(part.position for part in lane.parts) == [40, 50]
    shares.note(lane, 60)
    shares.end(lane)
    assert len(begun(shares, "b").parts) == 1, "they are one part again"


def test_what_is_parked_is_with_the_slot_of_its_key() -> None:
    keys = [ParkedKey(b"key %d" % number, (number,)) for number in range(1, 40)]
    shares = Shares([], 100, keys)
    settled(shares, {"a", "b"})
    a, b = begun(shares, "a"), begun(shares, "b")
    assert sorted(one.ids for one in (*a.parked, *b.parked)) == [one.ids for one in keys]
    assert all(slot_of_key(one.key or b"") in a.slots for one in a.parked)
    shares.note_parked(a, a.parked[1:])
    assert set(shares.parked) == set(keys) - {a.parked[0]}


def test_a_state_in_which_a_slot_is_nobodys_or_two_members_is_refused() -> None:
    def with_shares(*every: Share) -> SubscriptionState:
        return SubscriptionState(10, 1, "g", 1, shares=every)

    whole = Share("a", as_ranges(ALL), 10)
    assert check_state(with_shares(whole)) is None
    assert check_state(with_shares(whole, Share("b", ((5, 5),), 10)))
    assert check_state(with_shares(Share("a", ((0, SLOTS - 2),), 10)))
    assert check_state(with_shares(Share("a", as_ranges(ALL), 9))), "the position is beyond it"


def test_who_knows_of_no_shares_goes_on_at_the_position_with_what_is_parked_before_it() -> None:
    parked = (ParkedKey(b"k", (5, 8, 20)), ParkedKey(b"m", (15,)))
    shared = SubscriptionState(10, 1, "g", 1, parked=parked, shares=(Share("a", as_ranges(ALL), 10),))
    assert shared.without_shares() == SubscriptionState(10, 1, "g", 1, parked=(ParkedKey(b"k", (5, 8)),))
    alone = SubscriptionState(10, 1, "g", 1, parked=parked)
    assert alone.without_shares() == alone


def test_what_was_reached_is_that_of_the_share_a_message_falls_into() -> None:
    slot = slot_of_key(b"k")
    shares = (Share("a", as_ranges(ALL - {slot}), 10), Share("b", ((slot, slot),), 50))
    shared = SubscriptionState(10, 1, "g", 1, shares=shares)
    assert (shared.reached(b"k", 30), shared.reached(b"other", 30)) == (50, 10)
    assert SubscriptionState(10, 1, "g", 1).reached(None, 30) == 10
