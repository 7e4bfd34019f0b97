"""A task's rows are cut into the same batches whenever it runs, under ids that say which they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from delivery.batch import open_batch
from delivery.errors import AnsweredLongAgo, UnknownPartition, UnknownQueue
from delivery.metastore.records import QueueRecord
from delivery.model import Message, QueueSettings, partition_of
from delivery.publish.producers import Producers
from delivery.spark import cutting
from delivery.spark.cutting import Cut, Cutter, Origin
from delivery.storage.base import StoredBatch
from tests.unit.spark_rows import arrow

QUEUES = {name: QueueRecord(name, "g1", 0, QueueSettings(partitions=count)) for name, count in (("a", 3), ("b", 1))}
NAMES = ("value", "key", "partition", "queue")
TASK = Origin("stream x", 5, 2)

row_values = st.fixed_dictionaries({
    "value": st.binary(max_size=12), "key": st.sampled_from([None, b"", b"k1", b"k2", b"k3"]),
    "partition": st.sampled_from([None, None, 0]), "queue": st.sampled_from(["a", "b"]),
})  # fmt: skip
row_lists = st.lists(row_values, max_size=60)
Rows = Sequence[dict[str, Any]]


def queue_of(queue: str) -> QueueRecord:
    if queue not in QUEUES:
        raise UnknownQueue(f"no queue {queue!r}")
    return QUEUES[queue]


@contextmanager
def small_batches() -> Iterator[None]:
    """Limits that some ten rows reach."""
    with mock.patch.multiple(cutting, BATCH_ROWS=4, BATCH_BYTES=100, BLOCK_ROWS=15, BLOCK_BYTES=300):
        yield


def cut(rows: Rows, *ends: int, origin: Origin = TASK, queue: str = "") -> list[Cut]:
    """The batches of rows that come in parts which end there."""
    table = arrow(rows, *NAMES)
    edges = [0, *sorted(ends), len(rows)]
    cutter = Cutter(origin, queue, queue_of)
    found: list[Cut] = []
    for begin, end in pairwise(edges):
        found += cutter.add(table.slice(begin, end - begin))
    return [*found, *cutter.finish()]


def messages(cuts: Sequence[Cut]) -> dict[tuple[str, int], list[Message]]:
    found: dict[tuple[str, int], list[Message]] = {}
    for one in cuts:
        found.setdefault((one.queue.name, one.partition), []).extend(open_batch(one.data).messages(one.queue.name))
    return found


@given(row_lists, st.lists(st.integers(0, 60), max_size=6))
def test_how_arrow_divides_the_rows_does_not_count(rows: Rows, ends: list[int]) -> None:
    with small_batches():
        assert cut(rows, *(end for end in ends if end <= len(rows))) == cut(rows)


@given(row_lists)
def test_every_row_is_in_one_batch_of_its_queue_and_partition_in_order(rows: Rows) -> None:
    with small_batches():
        found = messages(cut(rows))
    for (queue, partition), there in found.items():
        partitions = QUEUES[queue].settings.partitions
        keyed = [
            row["value"] for row in rows if row["queue"] == queue and row["key"] is not None
            and partition == (0 if row["partition"] == 0 else partition_of(row["key"], partitions))
        ]  # fmt: skip
        assert [one.body for one in there if one.key is not None] == keyed
    for queue in QUEUES:
        everywhere = [one.body for (of, _), there in found.items() if of == queue for one in there]
        assert sorted(everywhere) == sorted(row["value"] for row in rows if row["queue"] == queue)


@given(row_lists)
def test_batches_of_a_partition_are_numbered_from_one_and_none_is_too_large(rows: Rows) -> None:
    with small_batches():
        cuts = cut(rows)
        numbers: dict[tuple[str, int], int] = {}
        for one in cuts:
            batch = open_batch(one.data)
            number = numbers[one.queue.name, one.partition] = numbers.get((one.queue.name, one.partition), 0) + 1
            assert batch.header.producer_sequence == 2 << 32 | number
            assert batch.header.producer_id == TASK.producer(one.queue.name)
            assert batch.header.count <= 4
            assert batch.header.count == 1 or sum(map(len, batch.bodies())) <= 100


def test_what_may_go_anywhere_goes_to_one_partition_until_a_batch_is_full_and_to_another_in_each_round() -> None:
    rows = [{"value": b"x", "queue": "a"}] * 12
    with small_batches():
        assert [one.partition for one in cut(rows)] == [1, 2, 0]
        assert [one.partition for one in cut(rows[:4])] == [1]
        assert [one.partition for one in cut(rows[:4], origin=Origin("stream x", 5, 3))] == [2]


def test_a_queue_that_is_given_goes_before_the_column() -> None:
    assert {one.queue.name for one in cut([{"value": b"x", "queue": "a"}], queue="b")} == {"b"}


def test_producers_differ_by_query_task_and_queue_and_stay_from_round_to_round() -> None:
    same = TASK.producer("a")
    assert 0 < same < 2**63
    assert Origin("stream x", 5, 77).producer("a") == same
    others = {Origin("stream y", 5, 2).producer("a"), Origin("stream x", 6, 2).producer("a"), TASK.producer("b")}
    assert len({same, *others}) == 4


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_the_queue_does_not_have_is_an_error(partition: int) -> None:
    with pytest.raises(UnknownPartition, match="'a' has partitions 0 to 2"):
        cut([{"value": b"x", "queue": "a", "partition": partition}])


def test_a_row_for_a_queue_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UnknownQueue, match="nosuch"):
        cut([{"value": b"x", "queue": "nosuch"}])


class Host:
    """What a host stores of the batches that it is sent."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self._producers: dict[tuple[str, int], Producers[None]] = {}

    def take(self, one: Cut) -> None:
        header = open_batch(one.data).header
        producers = self._producers.setdefault((one.queue.name, one.partition), Producers(()))
        try:
            if producers.find(header.producer_id, header.producer_sequence, header.payload_crc) is not None:
                return
        except AnsweredLongAgo:
            return
        producers.take(header.producer_id, header.producer_sequence, None)
        producers.stored(StoredBatch(header.producer_id, header.producer_sequence, len(self.stored), header.count))
        self.stored += open_batch(one.data).bodies()


@given(st.lists(st.tuples(row_lists, st.lists(st.integers(0, 60), max_size=3)), min_size=1, max_size=4), st.data())
def test_rounds_that_are_broken_off_and_run_again_store_every_row_once(
    rounds: list[tuple[Rows, list[int]]], data: st.DataObject
) -> None:
    host, sent = Host(), []
    with small_batches():
        for number, (rows, broken) in enumerate(rounds):
            cuts = cut(rows, origin=Origin("stream x", 0, number))
            for end in [*broken, len(cuts)]:
                for one in cuts[:end]:
                    host.take(one)
            sent += [row["value"] for row in rows]
            late = data.draw(st.sampled_from(cuts)) if cuts else None
            if late is not None:
                host.take(late)
    assert sorted(host.stored) == sorted(sent)


def test_an_earlier_round_that_is_still_running_stores_nothing_behind_a_later_one() -> None:
    host = Host()
    rows = [{"value": b"%d" % number, "key": b"k", "queue": "b"} for number in range(12)]
    with small_batches():
        first, second = cut(rows, origin=Origin("s", 0, 0)), cut(rows[:4], origin=Origin("s", 0, 1))
        for one in [first[0], *second, *first]:
            host.take(one)
    assert len(host.stored) == 4 + 4


@given(st.permutations([{"value": b"%d" % number, "key": key, "queue": "a"} for number, key in enumerate(
    [b"k1", b"k1", b"k2", b"k2", b"k2", b"k2", b"k2", None, None])]))  # fmt: skip
def test_a_batch_says_whether_it_has_the_same_rows_in_whatever_order_they_come(rows: Rows) -> None:
    with small_batches():
        cuts = [(open_batch(one.data).bodies(), one.whole) for one in cut(rows)]
    assert sorted((len(bodies), whole) for bodies, whole in cuts) == [(1, False), (2, True), (2, True), (4, False)]
    assert {frozenset(bodies) for bodies, whole in cuts if whole} == {frozenset({b"0", b"1"}), frozenset({b"7", b"8"})}


def test_no_batch_has_the_same_rows_in_whatever_order_when_there_are_several_blocks() -> None:
    with small_batches():
        assert not any(one.whole for one in cut([{"value": b"", "key": b"%d" % n, "queue": "a"} for n in range(16)]))


def test_no_rows_are_no_batches() -> None:
    assert cut([]) == []
    cutter = Cutter(TASK, "a", queue_of)
    assert [*cutter.add(pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})), *cutter.finish()] == []
