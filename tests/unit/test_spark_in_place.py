"""What a compaction in place decides: what is next, what may go, and what is brought as which batches."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from delivery.batch import Row, headers_in, open_batch
from delivery.batch.pick import dense
from delivery.errors import InvalidRequest, QueueExists
from delivery.metastore.copies import compacting_queue
from delivery.metastore.managers.records import ParkedKey, SubscriptionState
from delivery.metastore.records import QueueRecord
from delivery.model import QueueSettings
from delivery.spark.jobs.bringing import Ahead, Tally, behind
from delivery.spark.jobs.renewing import handled, stage
from tests.strategies import stamped

BASE = 1_600_000_000_000 * 32768


def queue(generation: str, *, copy_of: str = "", closed: bool = False) -> QueueRecord:
    return QueueRecord("orders", generation, 1, QueueSettings(closed=closed), copy_of=copy_of)


@pytest.mark.parametrize("closed", [False, True])
def test_what_there_is_of_queue_and_copy_tells_what_is_next(closed: bool) -> None:
    first = queue("a", closed=closed)
    assert stage(first, None) == "begin"
    assert stage(first, queue("s", copy_of="a", closed=True)) == "begin", "the copy is not whole"
    assert stage(queue("a", closed=True), queue("s", copy_of="a")) == "replace"
    for copy in (queue("s", copy_of="a"), queue("s", copy_of="a", closed=True)):
        assert stage(queue("b", copy_of="s", closed=True), copy) == "fill"
        assert stage(queue("b", copy_of="s"), copy) == "end"
    for other in (queue("x"), queue("x", copy_of="y", closed=closed)):
        with pytest.raises(QueueExists, match="none that a compaction"):
            stage(first, other)


def test_a_queue_needs_a_name_that_leaves_one_for_its_copy() -> None:
    assert compacting_queue("orders") == "orders.compacting"
    with pytest.raises(InvalidRequest, match="too long"):
        compacting_queue("q" * 240)


@given(ids=st.sets(st.integers(0, 19)), count=st.integers(1, 20))
def test_what_is_chosen_of_a_batch_becomes_batches_without_gaps(ids: set[int], count: int) -> None:
    rows: list[Row] = [(b"%d" % n, b"k" if n % 2 else None, f"t{n % 3}", b"") for n in range(count)]
    header, data = stamped(rows, BASE, producer=(7, 9))
    batch = open_batch(data, header)
    found = list(dense(batch, [BASE + n for n in ids]))
    opened = [open_batch(one, at) for one in found for _, at in headers_in(one)]
    assert len(opened) == len(found)
    assert [number - BASE for one in opened for number in one.ids()] == sorted(n for n in ids if n < count)
    assert [m.body for one in opened for m in one.messages("q")] == [b"%d" % n for n in sorted(ids) if n < count]
    for one in opened:
        assert (one.header.span, one.header.producer_id) == (one.header.count, 0)
        assert one.header.last_id + 1 not in batch.ids() or one.header.last_id + 1 - BASE not in ids, "whole runs"


@given(numbers=st.sets(st.integers(1, 60)), edges=st.lists(st.integers(0, 70)))
def test_ids_are_taken_bit_by_bit_and_none_is_lost(numbers: set[int], edges: list[int]) -> None:
    ahead, taken = Ahead(iter(sorted(numbers))), list[int]()
    for edge in sorted(edges):
        part = ahead.up_to(edge)
        assert all(one <= edge for one in part)
        taken += part
        assert ahead.first() == min((one for one in numbers if one > edge), default=None)
    assert taken == sorted(one for one in numbers if one <= max(edges, default=0))


def test_who_goes_on_leaves_out_what_is_there() -> None:
    parts = [stamped([(b"x", None, "", b"")], BASE + n)[1] for n in (0, 5, 9)]
    assert behind(b"".join(parts), BASE + 4) == b"".join(parts[1:])
    assert behind(b"".join(parts), BASE + 9) == b""


def test_the_last_of_a_partition_stays_and_counts_as_what_it_is() -> None:
    tally = Tally()
    rows = [(0, 3, False, False), (0, 4, True, False), (0, 7, True, False), (0, 7, True, True)]
    assert list(tally.staying(iter(rows))) == [3, 7]
    assert (tally.kept, tally.deleted) == (1, 2)
    assert list(Tally().staying(iter([(0, 3, False, False), (0, 3, False, True)]))) == [3]


def test_a_deletion_stays_while_it_is_parked_or_has_not_come() -> None:
    state = SubscriptionState(50, 1, "g", 1)
    assert handled(state) == 50
    assert handled(SubscriptionState(50, 1, "g", 1, parked=(ParkedKey(b"k", (20, 40)),))) == 19
