"""Reads with the option `isolation`: never beyond a transaction in progress, nothing that was rolled back.

Without a session: Spark only carries what the readers plan to those who read.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from delivery import Client, NewMessage, connect
from delivery.errors import MetadataUnavailable
from delivery.messaging.marks import header
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.spark.options import read_options
from delivery.spark.reading import Task
from delivery.spark.source import HootReader
from delivery.spark.stream import HootStreamReader
from tests.integration.engine import Engine
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def publish(client: Client, queue: str, *bodies: bytes, by: int = 0) -> None:
    headers = header(by) if by else {"of": b"none"}
    client.queue(queue).put_many([NewMessage(body, headers=headers, partition=0) for body in bodies])


def rows(reader: DataSourceReader | HootStreamReader, tasks: Any) -> list[bytes]:
    parts: Any = [part for task in tasks for part in reader.read(task)]
    return [body for part in parts for body in part.column("value").to_pylist()]


def test_a_batch_ends_before_what_is_in_progress(running: Engine) -> None:
    options = {"queue": "batches", "zookeeper": running.address, "isolation": "committed"}
    reader = HootReader(read_options(options))
    with connect(running.address) as client:
        client.create_queue("batches", partitions=2)
        committed, undone = client.transactions.begin(600_000).pointer, client.transactions.begin(600_000).pointer
        publish(client, "batches", b"plain")
        publish(client, "batches", b"never", by=undone)
        client.transactions.invalidate(undone)
        publish(client, "batches", b"before")
        publish(client, "batches", b"one", b"two", by=committed)
        publish(client, "batches", b"behind")
        assert rows(reader, reader.partitions()) == [b"plain", b"before"]
        view = client.transactions.view()
        client.transactions.commit(committed, [])
        everything = reader.partitions()
        assert rows(reader, everything) == [b"plain", b"before", b"one", b"two", b"behind"]
        with pytest.raises(MetadataUnavailable, match="has come up"):
            rows(reader, [with_view(task, view) for task in everything])
    uncommitted = HootReader(read_options(options | {"isolation": "uncommitted"}))
    assert len(rows(uncommitted, uncommitted.partitions())) == 6


def with_view(task: InputPartition, view: bytes) -> InputPartition:
    """As if a manager that was taken over from had told what is committed."""
    assert isinstance(task, Task)
    task.view = view
    return task


def test_a_stream_goes_on_when_it_has_ended(running: Engine) -> None:
    options = {"queue": "streams", "zookeeper": running.address, "isolation": "committed"}
    reader = HootStreamReader(read_options(options, stream=True))

    def batch(start: Any) -> tuple[Any, list[bytes]]:
        end = reader.latestOffset(start, ReadAllAvailable())
        return end, rows(reader, reader.partitions(start, end))

    with connect(running.address) as client:
        client.create_queue("streams")
        pointer = client.transactions.begin(600_000).pointer
        publish(client, "streams", b"old")
        publish(client, "streams", b"one", by=pointer)
        place, found = batch(reader.initialOffset())
        assert found == []
        publish(client, "streams", b"behind")
        assert batch(place) == (place, [])
        client.transactions.commit(pointer, [])
        place, found = batch(place)
        assert found == [b"one", b"behind"], "the latest is what is decided"
        assert batch(place) == (place, [])
    reader.stop()


def test_bodies_that_were_stored_before_come_where_a_publish_shows_them(running: Engine) -> None:
    with ZooKeeperClient(running.address) as zk, connect(running.address) as client:
        (host,) = open_catalog(zk).hosts()
        assert host.http_port is not None
        topics = Topics(host.address, host.http_port, "spark")
        topics.create("groups")
        options = {"queue": "spark.groups", "zookeeper": running.address}
        batches = [HootReader(read_options(options | {"isolation": one})) for one in ("uncommitted", "committed")]
        stream = HootStreamReader(read_options(options, stream=True))
        beginning, pointer = stream.initialOffset(), client.transactions.begin(600_000).pointer
        topics.store("groups", b"p1", b"p2", tx=pointer)
        topics.publish("groups", b"before")
        topics.store("groups", b"p3", tx=pointer)
        place = stream.latestOffset(beginning, ReadAllAvailable())
        assert rows(stream, stream.partitions(beginning, place)) == [b"before"]
        topics.publish("groups", tx=pointer)
        topics.publish("groups", b"behind")
        group = [b"p1", b"p2", b"p3"]
        assert rows(stream, stream.partitions(place, stream.latestOffset(place, ReadAllAvailable()))) == [
            *group, b"behind",
        ]  # fmt: skip
        assert [rows(one, one.partitions()) for one in batches] == [[b"before", *group, b"behind"], [b"before"]]
        client.transactions.commit(pointer, [])
        assert [rows(one, one.partitions()) for one in batches] == [[b"before", *group, b"behind"]] * 2
        topics.close()
        stream.stop()
