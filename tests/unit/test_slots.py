"""The slots that messages fall into, and cutting batches by them."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from delivery.batch import encode, open_batch, peek, select, stamp
from delivery.dispatch.slotting import InSlots, SlotColumns
from delivery.filters import filter_of
from delivery.metastore.slots import (
    ALL,
    SLOTS,
    as_ranges,
    in_ranges,
    slot_of,
    slot_of_id,
    slot_of_key,
    wrong_in_ranges,
)
from delivery.model import Message

SOME_SLOTS = st.sets(st.integers(0, SLOTS - 1))
KEYS = st.lists(st.none() | st.binary(max_size=3) | st.sampled_from([b"a", b"bb", b"ccc"]), min_size=1, max_size=60)


def stamped(keys: list[bytes | None], base: int, topic: str = "t") -> bytes:
    data = encode([(b"%d" % place, key, topic if place % 3 else "other", b"") for place, key in enumerate(keys)], 0)
    header = peek(data)
    assert header is not None
    return stamp(header, data, base, 1)[1]


def messages(data: bytes | None) -> list[Message]:
    return [] if data is None else list(open_batch(data).messages("orders"))


def cut(data: bytes, judge: InSlots) -> list[Message]:
    header = peek(data)
    assert header is not None
    return messages(select(header, data, judge))


@given(SOME_SLOTS)
def test_ranges_are_the_slots_in_short(slots: set[int]) -> None:
    assert in_ranges(as_ranges(slots)) == slots


@given(st.lists(SOME_SLOTS, max_size=4))
def test_the_slots_of_all_members_are_every_slot_once(several: list[set[int]]) -> None:
    left, every = set(ALL), []
    for slots in several:
        every.append(as_ranges(slots & left))
        left -= slots
    assert wrong_in_ranges([*every, as_ranges(left)]) == ""
    if left:
        assert wrong_in_ranges(every)
        assert wrong_in_ranges([*every, as_ranges(left), as_ranges([min(left)])])


def test_where_messages_fall_is_for_ever() -> None:
    """States in ZooKeeper name slots: another hash would hand out messages that somebody else has."""
    assert [slot_of_key(key) for key in (b"", b"a", b"order-4711")] == [0, 816, 2439]
    assert [slot_of_id(number) for number in (0, 15, 16, 1 << 50)] == [0, 0, 2531, 0]


def test_messages_without_a_key_are_spread_evenly_in_runs() -> None:
    first = 0x1234_5678_0000
    slots = [slot_of_id(number) for number in range(first, first + 3200)]
    assert len(set(slots)) == 200, "runs of 16"
    shares = [sum(slot // (SLOTS // 4) == quarter for slot in slots) for quarter in range(4)]
    assert max(shares) - min(shares) <= 64


@given(KEYS, st.integers(0, 1 << 40), SOME_SLOTS, st.booleans())
def test_whoever_cuts_every_message_falls_to_one_and_keeps_its_id(
    keys: list[bytes | None], base: int, slots: set[int], filtered: bool
) -> None:
    """With a filter, of those that it takes."""
    data, columns = stamped(keys, base), SlotColumns()
    wanted = filter_of(("t",), None) if filtered else None
    mine = frozenset(slots) | {slot_of(keys[0], base)}
    cuts = [cut(data, InSlots([(part, base - 1)], columns, wanted)) for part in (mine, ALL - mine)]
    whole = [one for one in messages(data) if not filtered or one.topic == "t"]
    assert sorted(cuts[0] + cuts[1], key=lambda one: one.number) == whole
    assert all(slot_of(one.key, one.number) in mine for one in cuts[0])


@given(KEYS, st.integers(0, 80))
def test_slots_that_were_reached_further_go_on_behind_that(keys: list[bytes | None], reached: int) -> None:
    base = 1000
    data = stamped(keys, base)
    ahead = frozenset(range(0, SLOTS, 2))
    judge = InSlots([(ahead, base + reached), (ALL - ahead, base - 1)], SlotColumns(), None)
    found = {one.number for one in cut(data, judge)}
    expected = {
        one.number for one in messages(data) if one.number > base + reached or slot_of(one.key, one.number) not in ahead
    }
    assert found == expected


def test_a_batch_without_keys_is_not_opened_when_it_lies_in_one_slot() -> None:
    columns = SlotColumns()
    data = stamped([None] * 16, 1600)
    header = peek(data)
    assert header is not None
    mine = frozenset([slot_of_id(1600)])
    assert InSlots([(mine, 0)], columns, None).decide(header, b"") is True
    assert InSlots([(ALL - mine, 0)], columns, None).decide(header, b"") is False
    assert InSlots([(mine, 1605)], columns, None).decide(header, b"") is None, "some of it was reached"
    longer = peek(stamped([None] * 17, 1600))
    assert longer is not None
    assert InSlots([(mine, 0)], columns, None).decide(longer, b"") is None


def test_slots_are_worked_out_once_for_all_members() -> None:
    random, columns = Random(1), SlotColumns()
    batches = [open_batch(stamped([random.randbytes(3) for _ in range(50)], 100 * place)) for place in range(20)]
    first = [columns.of(one) for one in batches]
    assert [columns.of(one) is known for one, known in zip(batches[-9:], first[-9:], strict=True)] == [True] * 9
    assert [list(columns.of(one)) for one in batches] == [list(one) for one in first]
    for one, slots in zip(batches, first, strict=True):
        assert [slot % SLOTS for slot in slots] == [slot_of(key, 0) for key in one.columns().keys if key is not None]
