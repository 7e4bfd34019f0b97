"""What a Spark task sends: options and columns are checked first, what is under way has limits, each batch an end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from delivery.batch import open_batch
from delivery.errors import AnsweredLongAgo, HootError, InvalidRequest, SequenceReused, StorageUnavailable
from delivery.metastore.records import QueueRecord
from delivery.model import QueueSettings
from delivery.spark import writing
from delivery.spark.cutting import Cut, Origin
from delivery.spark.planning import Engine
from delivery.spark.sinkoptions import write_options
from delivery.spark.writing import BATCHES_MAX, BYTES_MAX, Outlets, RowsDiffer, fits, store, write_paced, write_task
from tests.unit.spark_rows import arrow

TEXT, BYTES, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def headers(**columns: DataType) -> ArrayType:
    return ArrayType(schema(**columns))


ORDERS = QueueRecord("orders", "g1", 0, QueueSettings())
SCHEMA = schema(value=TEXT, key=BYTES, topic=TEXT, partition=INT)
COPIED = schema(
    key=BYTES, value=BYTES, topic=TEXT, partition=INT, offset=LONG, timestamp=TimestampType(), timestampType=INT,
    headers=headers(key=TEXT, value=BYTES), queue=TEXT,
)  # fmt: skip


def cut(place: int = 0, data: bytes = b"x", *, whole: bool = False) -> Cut:
    return Cut(ORDERS, place, data, whole)


def test_a_write_takes_the_columns_of_a_read_and_has_an_id_of_its_own() -> None:
    one = write_options({"QUEUE": "orders", "zookeeper": "zk:1"}, COPIED, overwrite=False, stream=False)
    other = write_options({"path": "x"}, COPIED, overwrite=False, stream=False)
    assert (one.queue, one.zookeeper, other.queue) == ("orders", "zk:1", "")
    assert one.write_id != other.write_id
    named = write_options({"queue": "q", "writeId": "load 7"}, SCHEMA, overwrite=False, stream=False)
    assert named.write_id == "load 7"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, 'needs the name of a queue: .option\\("queue"'),
        ({"queue": "a/b"}, "no queue name"),
        ({"queue": "q", "zookeper": "x"}, "the hoot sink has no option 'zookeper'; did you mean 'zookeeper'"),
        ({"queue": "q", "startingOffsets": "latest"}, "it has queue, zookeeper, writeId"),
        ({"queue": "q", "writeId": ""}, "writeId is empty"),
    ],
)
def test_options_that_cannot_be_are_one_error_that_names_them(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        write_options(given, SCHEMA, overwrite=False, stream=False)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (schema(key=TEXT), "there is no column value"),
        (schema(valeu=TEXT), "no column 'valeu'; did you mean 'value'"),
        (schema(value=TEXT, amount=INT), "no column 'amount'; it takes value, key, topic, headers, partition, queue"),
        (schema(value=INT), "column value is int; it must be string or binary"),
        (schema(value=TEXT, key=LONG), "column key is bigint"),
        (schema(value=TEXT, topic=BYTES), "column topic is binary; it must be string"),
        (schema(value=TEXT, partition=TEXT), "column partition is string; it must be int"),
        (schema(value=TEXT, queue=INT), "column queue is int"),
        (
            schema(value=TEXT, headers=MapType(TEXT, BYTES)),
            "column headers is map<string,binary>; it must be array<str",
        ),
        (schema(value=TEXT, headers=headers(name=TEXT, value=BYTES)), "column headers is array"),
        (schema(value=TEXT, headers=headers(key=TEXT, value=INT)), "column headers is array"),
    ],
)
def test_columns_that_are_no_messages_are_one_error_that_names_them(columns: StructType, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        write_options({"queue": "q"}, columns, overwrite=False, stream=False)


def test_a_queue_is_not_overwritten_and_a_stream_has_its_id_from_its_checkpoint() -> None:
    with pytest.raises(InvalidRequest, match="append"):
        write_options({"queue": "q"}, SCHEMA, overwrite=True, stream=False)
    with pytest.raises(InvalidRequest, match="known by its checkpoint"):
        write_options({"queue": "q", "writeId": "x"}, SCHEMA, overwrite=False, stream=True)


def test_a_partition_has_one_batch_under_way_and_a_task_as_many_as_its_limits_allow() -> None:
    assert fits(cut(0), [])
    assert not fits(cut(0), [cut(0)])
    assert fits(cut(0), [cut(1)])
    assert not fits(cut(0), [cut(place) for place in range(1, BATCHES_MAX + 1)])
    large = cut(1, bytes(BYTES_MAX))
    assert fits(large, [])
    assert not fits(cut(0), [large])


def test_a_batch_waits_for_the_one_before_it_in_its_partition() -> None:
    log, free = [], threading.Event()

    def send(one: Cut) -> None:
        if one.data == b"first":
            free.wait(30)
        log.append(one.data)

    with Outlets(send) as outlets:
        outlets.put(cut(0, b"first"))
        outlets.put(cut(1, b"elsewhere"))
        threading.Timer(0, free.set).start()
        outlets.put(cut(0, b"second"))
        outlets.finish()
    assert log.index(b"first") < log.index(b"second")
    assert len(log) == 3


def test_what_is_not_stored_fails_the_task() -> None:
    def send(one: Cut) -> None:
        raise StorageUnavailable("the disk is full")

    with Outlets(send) as outlets:
        outlets.put(cut())
        with pytest.raises(StorageUnavailable):
            outlets.finish()


class Answering:
    """An engine that answers a publish with nothing, or with an error."""

    def __init__(self, answer: HootError | None) -> None:
        self._answer = answer

    def publish(self, *_: object) -> None:
        if self._answer is not None:
            raise self._answer


def store_with(answer: HootError | None, *, whole: bool = False) -> None:
    store(cast("Engine", Answering(answer)), cut(whole=whole))


def test_a_batch_that_was_stored_by_an_earlier_run_counts_as_stored() -> None:
    store_with(None)
    store_with(AnsweredLongAgo("batch 1 was answered long ago"))


def test_a_task_that_has_other_rows_when_it_runs_again_is_told_unless_they_only_come_in_another_order() -> None:
    store_with(SequenceReused("batch 1 is not the one that was taken"), whole=True)
    with pytest.raises(RowsDiffer, match="stored other rows in orders/0"):
        store_with(SequenceReused("batch 1 is not the one that was taken"))


class Remembering:
    """An engine whose hosts remember each batch by its number, and take no other one under it."""

    def __init__(self) -> None:
        self.stored: dict[tuple[int, int], Sequence[bytes]] = {}

    def queue(self, _: str) -> QueueRecord:
        return ORDERS

    def publish(self, _: QueueRecord, partition: int, data: bytes) -> None:
        batch = open_batch(data)
        if self.stored.setdefault((partition, batch.header.producer_sequence), batch.bodies()) != batch.bodies():
            raise SequenceReused("it is not the one that was taken")


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Remembering:
    found = Remembering()

    @contextmanager
    def engine(*_: object) -> Iterator[Remembering]:
        yield found

    monkeypatch.setattr(writing, "engine", engine)
    return found


ROWS = arrow([{"value": b"%d" % number} for number in range(10)], "value")


def test_rows_at_a_pace_that_shift_when_the_task_runs_again_are_told(hosts: Remembering) -> None:
    origin = Origin("a write", 0)
    write_paced("zk:1", "orders", origin, [ROWS[:4]], 10)
    write_paced("zk:1", "orders", origin, [ROWS[:1], ROWS[1:4]], 10)
    assert list(hosts.stored.values()) == [[b"0", b"1"], [b"2", b"3"]]
    with pytest.raises(RowsDiffer):
        write_paced("zk:1", "orders", origin, [ROWS[2:]], 10)


def test_rows_that_fit_one_batch_may_come_in_another_order_but_not_at_a_pace(hosts: Remembering) -> None:
    turned = ROWS.take([1, 0])
    write_task("zk:1", "orders", Origin("a write", 0), [ROWS[:2]])
    write_task("zk:1", "orders", Origin("a write", 0), [turned])
    assert list(hosts.stored.values()) == [[b"0", b"1"]]
    with pytest.raises(RowsDiffer):
        write_paced("zk:1", "orders", Origin("a write", 0), [turned], 10)
