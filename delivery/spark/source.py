"""The Spark data source `hoot`: a queue as a DataFrame.

    spark.read.format("hoot").option("queue", "flights").load()

Options: `queue` (needed), `zookeeper` (default: the environment's HOOT_ZOOKEEPER, else 127.0.0.1:2181) and `topics`, a
comma-separated list that the region hosts filter by. A read covers what was complete when it was planned: each
partition up to its watermark then. Columns are those of `arrow.SCHEMA`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from delivery.batch import headers_in, open_batch
from delivery.client.calls import Calls
from delivery.client.hosts import Owners
from delivery.errors import InvalidRequest
from delivery.filters import check_pattern
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import check_name, near_names
from delivery.rpc.idl import load_idl
from delivery.rpc.pool import Pool
from delivery.spark.arrow import to_arrow

READ_BYTES = 4 * 1024 * 1024
"""Asked for at once: some ten thousand small messages, which is the size of Arrow batch that Spark likes best."""
_SCHEMA = """
    key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>
"""
_OPTIONS = ("queue", "zookeeper", "topics")
_READER_OPTIONS = ("path",)
"""Spark's own, which `load()` may add."""


class Options(NamedTuple):
    """The options of a read, checked."""

    queue: str
    zookeeper: str
    topics: tuple[str, ...]


def read_options(given: Mapping[str, str]) -> Options:
    """The options of a read. Raises InvalidRequest naming what is wrong, with the near name of an unknown option."""
    for name in given:
        if name.lower() not in (*_OPTIONS, *_READER_OPTIONS):
            near = "".join(f"; did you mean {known!r}?" for known in near_names(name.lower(), _OPTIONS)[:1])
            raise InvalidRequest(f"the hoot source has no option {name!r}{near}")
    if "queue" not in given:
        raise InvalidRequest('the hoot source needs the name of a queue: .option("queue", …)')
    topics = tuple(check_pattern(topic.strip()) for topic in given.get("topics", "").split(",") if topic.strip())
    zookeeper = given.get("zookeeper") or os.environ.get("HOOT_ZOOKEEPER") or "127.0.0.1:2181"
    return Options(check_name("queue", given["queue"]), zookeeper, topics)


class Range(InputPartition):
    """One partition's ids above `after` and up to `until`."""

    def __init__(self, partition: int, after: int, until: int) -> None:
        super().__init__(partition)
        self.partition, self.after, self.until = partition, after, until


class HootDataSource(DataSource):
    """What Spark finds under the name `hoot`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "hoot"

    def schema(self) -> str:
        """The columns, as Spark's DDL; Arrow's are in `arrow.SCHEMA`."""
        return _SCHEMA

    def reader(self, schema: StructType) -> HootReader:  # noqa: ARG002 - Spark names it in its call
        """A reader of the queue. Raises InvalidRequest for options that cannot be."""
        return HootReader(read_options(dict(self.options)))


class HootReader(DataSourceReader):
    """Plans in the driver, reads in the executors; each time with connections of its own."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[Range]:
        """A range per partition that holds anything. Raises UnknownQueue, NoHost, MetadataUnavailable."""
        queue = self._options.queue
        ranges = []
        with _engine(self._options.zookeeper) as (catalog, calls):
            for partition in range(catalog.queue(queue).settings.partitions):
                info = calls.call(queue, partition, "partitionInfo", queue, partition)
                if info.messages:
                    ranges.append(Range(partition, info.firstId - 1, info.lastId))
        return ranges or [Range(0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a range, as Arrow."""
        assert isinstance(partition, Range)
        with _engine(self._options.zookeeper) as (_, calls):
            after = partition.after
            while after < partition.until:
                reply = self._read(calls, partition, after)
                yield from _opened(reply.batches, after, partition.until)
                if reply.position <= after:
                    return  # what was there when the read was planned has been dropped by retention since
                after = reply.position

    def _read(self, calls: Calls, part: Range, after: int) -> Any:
        options = self._options
        request = load_idl("delivery").ReadRequest(
            queue=options.queue, partition=part.partition, after=after, upTo=part.until, topics=list(options.topics),
            bytesMax=READ_BYTES, waitMs=0,
        )  # fmt: skip
        return calls.call(options.queue, part.partition, "read", request)


def _opened(batches: bytes, after: int, until: int) -> Iterator[pa.RecordBatch]:
    for at, header in headers_in(batches):
        if header.base_id <= until:
            yield to_arrow(open_batch(bytes(batches[at : at + header.length]), header), after, until)


@contextmanager
def _engine(zookeeper: str) -> Iterator[tuple[Catalog, Calls]]:
    with ZooKeeperClient(zookeeper) as session:
        catalog, pool = open_catalog(session), Pool()
        try:
            yield catalog, Calls(Owners(catalog), pool)
        finally:
            pool.close()
