"""The options of a Spark read: what they mean, and what is said of those that cannot be."""

from __future__ import annotations

import pytest

from delivery.errors import InvalidRequest
from delivery.spark.columns import COLUMNS
from delivery.spark.options import Edge, as_offsets, from_offsets, read_options


def test_a_queue_alone_is_read_from_end_to_end_and_a_stream_from_now_on() -> None:
    batch, stream = read_options({"queue": "q"}), read_options({"queue": "q"}, stream=True)
    assert (batch.names, batch.start, batch.end, batch.columns) == (("q",), Edge("earliest"), Edge("latest"), COLUMNS)
    assert stream.start == Edge("latest")
    assert batch.fail_on_loss
    assert not batch.push


def test_names_of_options_are_those_of_kafkas_source_in_any_case() -> None:
    options = read_options({
        "SUBSCRIBE": "a, b,a", "startingOffsets": '{"a": {"0": 57, "1": -2}}', "endingTimestamp": "1000",
        "startingTimestamp": "5", "failOnDataLoss": "False", "minPartitions": "8", "includeHeaders": "false",
        "columns": "value,key", "topics": "t.*", "path": "ignored",
    })  # fmt: skip
    assert options.names == ("a", "b")
    assert options.start == Edge("time", time_ms=5)  # before the offsets, as Kafka's source has it
    assert options.end == Edge("time", time_ms=1000)
    assert (options.fail_on_loss, options.tasks_min, options.columns) == (False, 8, ("key", "value"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "exactly one of queue, subscribe, subscribePattern, assign"),
        ({"queue": "a", "subscribe": "b"}, "exactly one of"),
        ({"subscribe": " , "}, "names no queue"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"assign": "[1]"}, "must be JSON like"),
        ({"assign": '{"q": []}'}, "names no partition"),
        ({"queue": "..", "zookeeper": "x:1"}, "no queue name"),
        ({"queue": "q", "zookeper": "x:1"}, "did you mean 'zookeeper'"),
        ({"queue": "q", "startingOfsets": "latest"}, "did you mean 'startingOffsets'"),
        ({"queue": "q", "startingOffsets": "latest"}, "would be empty"),
        ({"queue": "q", "endingOffsets": "earliest"}, "would be empty"),
        ({"queue": "q", "startingOffsets": '{"q": {"0": -1}}'}, "would be empty"),
        ({"queue": "q", "endingOffsets": '{"q": {"0": -2}}'}, "would be empty"),
        ({"queue": "q", "startingOffsets": '{"q": {"0": -3}}'}, "is nothing that partition 0"),
        ({"queue": "q", "startingOffsets": "newest"}, "must be JSON like"),
        ({"queue": "q", "startingTimestamp": "yesterday"}, "whole number above 0"),
        ({"queue": "q", "minPartitions": "0"}, "whole number above 0"),
        ({"queue": "q", "failOnDataLoss": "maybe"}, "true or false"),
        ({"queue": "q", "columns": "valu"}, "did you mean 'value'"),
        ({"queue": "q", "columns": "headers", "includeHeaders": "false"}, "no column 'headers'"),
        ({"queue": "q", "topics": "a,b/c"}, "no topic name"),
        ({"queue": "q", "filter": "body.n <"}, "filter"),
        ({"queue": "q", "isolation": "serializable"}, "isolation is one of uncommitted, committed"),
        ({"queue": "q", "maxOffsetsPerTrigger": "5"}, "is for streams"),
        ({"queue": "q", "subscription": "s"}, "is for streams"),
        ({"queue": "q", "hbasePrefix": "h"}, "hbasePrefix goes with the option hbase"),
        ({"queue": "q", "hbase": " "}, "names no Thrift gateway"),
        ({"queue": "q", "hbase": "gate", "isolation": "committed"}, "is the region hosts' to say"),
    ],
)
def test_options_that_cannot_be_are_one_error_that_names_them(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        read_options(given)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidRequest, match="endingOffsets is for batches: a stream"):
        read_options({"queue": "q", "endingOffsets": "latest"}, stream=True)


def test_no_condition_chooses_what_a_stream_reads() -> None:
    with pytest.raises(InvalidRequest, match="pushFilters is for batches"):
        read_options({"queue": "q", "pushFilters": "true"}, stream=True)


def test_positions_of_a_stream_survive_json_and_those_of_another_source_are_refused() -> None:
    positions = {("a", 0): 56, ("a", 11): -1, ("b", 2): 7}
    assert as_offsets(positions) == {"a": {"0": 57, "11": 0}, "b": {"2": 8}}
    assert from_offsets(as_offsets(positions)) == positions
    with pytest.raises(InvalidRequest, match="not written by this source"):
        from_offsets({"a": 5})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"subscribe": "a,b", "subscription": "s"}, "one queue's"),
        ({"subscribePattern": "a.*", "subscription": "s"}, "one queue's"),
        ({"queue": "q", "subscription": "__own"}, "Hoot's own"),
        ({"queue": "q", "force": "true"}, "goes with the option subscription"),
    ],
)
def test_a_stream_reads_a_subscription_of_one_queue(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        read_options(given, stream=True)
    options = read_options({"assign": '{"q": [1]}', "subscription": "s", "force": "true"}, stream=True)
    assert (options.subscription, options.force) == ("s", True)
