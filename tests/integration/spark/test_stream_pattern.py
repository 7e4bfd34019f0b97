"""A stream of all queues whose names match: which come later, and what it ends with."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from delivery import NewMessage, connect
from delivery.spark.options import read_options
from delivery.spark.stream import HootStreamReader
from tests.integration.engine import Engine

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def rows(reader: HootStreamReader, start: Any, end: Any) -> list[bytes]:
    parts: Any = [part for task in reader.partitions(start, end) for part in reader.read(task)]
    return [body for part in parts for body in part.column("value").to_pylist()]


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(1000)], ids=["all", "limited"])
def test_what_is_there_at_the_start_is_the_end_and_a_queue_that_comes_later_is_read_by_the_next_one(
    running: Engine, limit: Any
) -> None:
    prefix = type(limit).__name__.lower()
    given = {"subscribePattern": f"{prefix}-.*", "zookeeper": running.address, "startingOffsets": "earliest"}
    first, second = (HootStreamReader(read_options(given, stream=True)) for _ in range(2))
    with connect(running.address) as client, ExitStack() as stack:
        stack.callback(first.stop)
        stack.callback(second.stop)
        client.create_queue(f"{prefix}-old").put(b"old")
        start = first.initialOffset()
        first.prepareForTriggerAvailableNow()
        client.create_queue(f"{prefix}-empty")
        new = client.create_queue(f"{prefix}-new")
        places, found = [start], list[bytes]()
        for _ in range(3):
            new.put_many([NewMessage(b"new")] * 2)
            places.append(first.latestOffset(places[-1], limit))
            found += rows(first, *places[-2:])
        assert found == [b"old"]
        at = places[-1]
        assert at == places[-2], "it ends, however long others publish"
        second.prepareForTriggerAvailableNow()
        assert rows(second, at, second.latestOffset(at, limit)) == [b"new"] * 6
