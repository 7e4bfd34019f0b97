"""Which batch of a publisher a message joins, when a batch may go, and what may be added without asking."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from delivery.client.accumulator import ROW_BYTES, Accumulator, Limits
from delivery.client.outgoing import Plain
from delivery.client.receipts import Batch
from delivery.client.routing import Router
from delivery.model import partition_of
from tests.lanes import rows_of


def accumulator(partitions: int = 1, **limits: float) -> Accumulator:
    return Accumulator(Router("q", partitions, Random(1)), Limits(**limits), 1 << 20)  # type: ignore[arg-type]


def place(of: Accumulator, body: bytes = b"x", now: float = 0.0, key: bytes | None = None) -> Batch:
    batch, index = of.place((body, key, "", b""), len(body) + ROW_BYTES, None, now, 30.0)
    assert batch.rows.bodies[index] == body
    return batch


def test_a_batch_waits_for_its_linger_and_is_then_taken_whole() -> None:
    under_test = accumulator(linger=1.0)
    batch = place(under_test, now=0.0)
    assert place(under_test, now=0.5) is batch
    assert under_test.ready(0.9) == []
    assert under_test.take(0, 0.9) is None
    assert under_test.next_due(0.9) == 1.0
    assert under_test.ready(1.0) == [0]
    assert under_test.take(0, 1.0) is batch
    assert len(batch.rows) == 2
    assert under_test.take(0, 1.0) is None


def test_a_full_batch_may_go_at_once_and_the_next_message_opens_another() -> None:
    under_test = accumulator(linger=60.0, batch_messages=2)
    batches = [place(under_test) for _ in range(5)]
    assert batches[0] is batches[1]
    assert batches[1] is not batches[2]
    assert under_test.closings == 2
    assert [under_test.take(0, 0.0), under_test.take(0, 0.0)] == [batches[0], batches[2]]
    under_test.hurry(0.0)
    assert under_test.take(0, 0.0) is batches[4]


def test_an_open_batch_that_is_due_goes_on_growing_until_it_is_taken() -> None:
    under_test = accumulator(linger=0.0)
    assert place(under_test, now=0.0) is place(under_test, now=5.0)


def test_a_message_larger_than_a_batch_or_the_buffer_goes_alone() -> None:
    under_test = accumulator(batch_bytes=100, buffer_bytes=50)
    assert under_test.fits(5000)
    batch = place(under_test, bytes(5000))
    assert not under_test.fits(1)
    under_test.hurry(0.0)
    assert under_test.take(0, 0.0) is batch
    under_test.settled(batch)
    assert under_test.fits(5000)


def test_each_transaction_has_batches_of_its_own_so_that_none_is_refused_with_another() -> None:
    under_test = accumulator(linger=60.0)
    row = (b"x", None, "", b"")
    pointers = [0, 7, 7, 8, 0]
    batches = [under_test.place(row, 1 + ROW_BYTES, 0, 0.0, 30.0, pointer)[0] for pointer in pointers]
    assert [batch.pointer for batch in batches] == pointers
    assert batches[1] is batches[2]
    assert len(set(batches)) == 4
    under_test.hurry(0.0)
    assert [under_test.take(0, 0.0) for _ in range(4)] == [batches[0], batches[1], batches[3], batches[4]]


def test_batches_past_their_deadline_are_taken_out() -> None:
    under_test = accumulator(batch_messages=1)
    early, late = place(under_test, now=0.0), place(under_test, now=10.0)
    assert under_test.expired(30.0) == [early]
    assert under_test.expired(40.0) == [late]
    assert under_test.ready(99.0) == []


@given(
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from([None, b"a", b"b", b"c"])), max_size=120),
    st.integers(1, 6), st.integers(1, 500), st.integers(0, 2**32),
)  # fmt: skip
def test_every_message_leaves_in_one_batch_in_order_within_the_limits(
    messages: list[tuple[int, bytes | None]], batch_messages: int, batch_bytes: int, seed: int
) -> None:
    random, now = Random(seed), 0.0
    under_test = accumulator(3, batch_messages=batch_messages, batch_bytes=batch_bytes, linger=1.0)
    room, taken = under_test.room, []
    bodies = [number.to_bytes(2, "big") + bytes(size) for number, (size, _) in enumerate(messages)]
    together = 0
    for number, (body, (_, key)) in enumerate(zip(bodies, messages, strict=True)):
        if number < together:
            continue
        if key is None and random.random() < 0.3:
            together = next((at for at in range(number, len(messages)) if messages[at][1] is not None), len(messages))
            place_together(under_test, bodies[number:together], now)
        elif key is not None or random.random() < 0.3 or not put_by_grant(under_test, body):
            place(under_test, body, now, key)
        now += random.random()
        if random.random() < 0.3:
            taken += [b for p in under_test.ready(now) if (b := under_test.take(p, now)) is not None]
    taken += under_test.take_all()
    for batch in taken:
        assert batch.partition < 3
        assert len(batch.rows) == 1 or (len(batch.rows) <= batch_messages and batch.size <= batch_bytes)
        for _, key, _, _ in rows_of(batch):
            assert key is None or partition_of(key, 3) == batch.partition
        under_test.settled(batch)
    numbers = [int.from_bytes(row[0][:2], "big") for batch in taken for row in rows_of(batch)]
    assert sorted(numbers) == list(range(len(messages)))
    for partition in range(3):
        mine = [int.from_bytes(r[0][:2], "big") for b in taken if b.partition == partition for r in rows_of(b)]
        assert mine == sorted(mine)
    assert under_test.room == room
    assert not under_test.unsettled


def place_together(under_test: Accumulator, bodies: list[bytes], now: float) -> None:
    """As `Publisher.put_many` does."""
    plain, at = Plain(bodies), 0
    while at < len(bodies):
        batch, places = under_test.place_plain(plain, at, now, 30.0)
        before, at = at, at + len(places)
        assert batch.rows.bodies[places.start : places.stop] == bodies[before:at]


def put_by_grant(under_test: Accumulator, body: bytes) -> bool:
    """As `Publisher.put` does."""
    if not under_test.grants:
        return False
    grant = under_test.grants.pop()
    fits = grant.left >= len(body) + ROW_BYTES
    if fits:
        grant.left -= len(body) + ROW_BYTES
        grant.bodies.append(body)
    under_test.grants.append(grant)
    return fits


def test_a_grant_ends_where_the_buffer_the_batch_or_the_largest_message_does() -> None:
    for limits in ({"buffer_bytes": 1000}, {"batch_bytes": 1000}, {"batch_messages": 31}):
        under_test = accumulator(1, **limits)
        place(under_test, b"", 0.0)
        assert 900 < under_test.grants[0].left <= 1000 - ROW_BYTES
    under_test = Accumulator(Router("q", 1, Random(1)), Limits(), 500)
    place(under_test, b"", 0.0)
    assert under_test.grants[0].left == 500


def test_what_is_granted_counts_as_taken_until_it_is_given_back() -> None:
    under_test = accumulator(1, buffer_bytes=1000)
    place(under_test, bytes(100), 0.0)
    assert under_test.room == 1000 - 100 - ROW_BYTES
    assert put_by_grant(under_test, bytes(200))
    assert under_test.room == 1000 - 300 - 2 * ROW_BYTES
    [batch] = under_test.take_all()
    assert batch.size == 300 + 2 * ROW_BYTES
    assert not under_test.grants
    under_test.settled(batch)
    assert under_test.room == 1000


def test_bodies_that_come_together_fill_each_batch_to_its_limits() -> None:
    under_test = accumulator(linger=60.0, batch_messages=4, batch_bytes=3 * (10 + ROW_BYTES))
    plain = Plain([bytes(10)] * 7 + [b""] * 5 + [bytes(1000), b"last"])
    sizes, at = [], 0
    while at < len(plain.bodies):
        batch, places = under_test.place_plain(plain, at, 0.0, 30.0)
        at += len(places)
        sizes.append(len(batch.rows))
    assert sizes == [3, 3, 3, 3, 1, 1], "of 10 bytes; one and two empty ones; empty; too large; last"


def test_bodies_that_come_together_join_those_that_are_there_as_far_as_there_is_room() -> None:
    for limits in ({"batch_messages": 4}, {"batch_bytes": 4 * (1 + ROW_BYTES)}, {"buffer_bytes": 9 * (1 + ROW_BYTES)}):
        under_test = accumulator(linger=60.0, **limits)
        _, _, there = (place(under_test) for _ in range(3))
        plain = Plain([b"y"] * 8)
        batch, places = under_test.place_plain(plain, 0, 0.0, 30.0)
        assert batch is there
        assert len(batch.rows) == limits.get("batch_messages", 4 if "batch_bytes" in limits else 9)
        assert places == range(3, len(batch.rows))
        assert batch.size - sum(grant.left for grant in under_test.grants) == len(batch.rows) * (1 + ROW_BYTES)
        if "buffer_bytes" in limits:
            assert not under_test.fits(1 + ROW_BYTES)
        else:
            batch, places = under_test.place_plain(plain, len(places), 0.0, 30.0)
            assert (batch is there, places) == (False, range(4))


def test_bodies_that_come_together_stand_behind_what_has_a_key() -> None:
    under_test = accumulator(linger=60.0)
    place(under_test, b"a", key=b"k")
    batch, places = under_test.place_plain(Plain([b"b", b"c"]), 0, 0.0, 30.0)
    assert places == range(1, 3)
    assert rows_of(batch) == [(b"a", b"k", "", b""), (b"b", None, "", b""), (b"c", None, "", b"")]


class Hurried(Accumulator):
    """Whose grants are used by somebody else as soon as they are there."""

    def _grant(self, batch: Batch, topic: str) -> None:
        super()._grant(batch, topic)
        put_by_grant(self, b"somebody's")


def test_a_message_has_its_own_place_although_others_join_before_it_is_told() -> None:
    under_test = Hurried(Router("q", 1, Random(1)), Limits(linger=60.0), 1 << 20)
    place(under_test, b"a")
    place(under_test, b"b")
    place_together(under_test, [b"c", b"d"], 0.0)
    assert [row[0] for row in rows_of(place(under_test, b"e"))] == [
        b"a", b"somebody's", b"b", b"somebody's", b"c", b"d", b"somebody's", b"e", b"somebody's",
    ]  # fmt: skip


def test_a_grant_that_is_not_given_back_is_taken_away_with_what_it_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delivery.client.accumulator.GRANT_SECONDS", 0.01)
    under_test = accumulator(linger=60.0)
    batch = place(under_test, b"a")
    grant = under_test.grants.pop()
    grant.bodies.append(b"in time")
    assert place(under_test, b"b") is batch
    grant.bodies.append(b"too late")
    assert grant.kept == 2
    under_test.grants.append(grant)
    assert place(under_test, b"c") is batch
    assert list(under_test.grants) == [under_test.grants[0]]
    assert under_test.grants[0] is not grant
    assert batch.rows.bodies == [b"a", b"in time", b"b", b"c"]


def test_a_stopped_accumulator_grants_nothing() -> None:
    under_test = accumulator(1)
    place(under_test, b"x", 0.0)
    under_test.stop()
    assert not under_test.grants
    place(under_test, b"y", 0.0)
    assert not under_test.grants
