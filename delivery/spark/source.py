"""The Spark data source `hoot`: queues as a DataFrame, as a batch or as a stream.

    spark.read.format("hoot").option("queue", "flights").load()
    spark.readStream.format("hoot").option("subscribe", "orders,flights").load()

Options are in `options`, columns in `columns`. A batch covers what is complete when it is planned: each partition up to
its watermark then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from delivery.spark.columns import ddl
from delivery.spark.options import ReadOptions, read_options
from delivery.spark.planning import engine, plan
from delivery.spark.pushing import Narrowed, narrow
from delivery.spark.reading import Task, read_task
from delivery.spark.sink import HootStreamWriter, HootWriter
from delivery.spark.sinkoptions import WriteOptions, write_options
from delivery.spark.stream import HootStreamReader


class HootDataSource(DataSource):
    """What Spark finds under the name `hoot`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "hoot"

    def schema(self) -> str:
        """The columns, as Spark's DDL. Raises InvalidRequest for options of columns that cannot be."""
        return ddl(read_options(_of_columns(self.options)).columns)

    def reader(self, schema: StructType) -> HootReader:  # noqa: ARG002 - Spark names it in its call
        """A reader of a batch. Raises InvalidRequest for options that cannot be."""
        options = read_options(dict(self.options))
        return PushingReader(options) if options.push else HootReader(options)

    def streamReader(self, schema: StructType) -> HootStreamReader:  # noqa: N802, ARG002 - Spark's names
        """A reader of a stream. Raises InvalidRequest for options that cannot be."""
        return HootStreamReader(read_options(dict(self.options), stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> HootWriter:
        """A writer of a batch. Raises InvalidRequest for options and columns that cannot be, UnknownQueue."""
        return HootWriter(_checked(write_options(self.options, schema, overwrite=overwrite, stream=False)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> HootStreamWriter:  # noqa: N802 - Spark's
        """A writer of a stream. Raises as `writer`."""
        return HootStreamWriter(_checked(write_options(self.options, schema, overwrite=overwrite, stream=True)))


def _checked(options: WriteOptions) -> WriteOptions:
    """The options, when there is such a queue, so that it is said before any task begins."""
    if options.queue:
        with engine(options.zookeeper) as hosts:
            hosts.queue(options.queue)
    return options


def _of_columns(given: Mapping[str, str]) -> dict[str, str]:
    """Those options that choose columns; a batch and a stream are not told apart yet."""
    chosen = {name: value for name, value in given.items() if name.lower() in {"columns", "includeheaders"}}
    return {"queue": "q", **chosen}


class HootReader(DataSourceReader):
    """Plans in the driver, reads in the executors; each time with connections of its own."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._narrowed = Narrowed()

    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises UnknownQueue, InvalidRequest, NoHost, MetadataUnavailable."""
        with engine(self._options.zookeeper) as hosts:
            spans = [left for span in plan(hosts, self._options) if (left := self._narrowed.span(span)) is not None]
            view = hosts.view(self._options.isolation)
            tasks = hosts.tasks(spans, self._options.tasks_min)
            return [Task(span, hosts.owner((span.queue, span.partition)), view) for span in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a task, as Arrow."""
        options = self._options
        if self._narrowed.topics is not None and not options.topics:
            options = msgspec.structs.replace(options, topics=tuple(sorted(self._narrowed.topics)))
        return read_task(options, partition)


class PushingReader(HootReader):
    """One whose query's conditions choose what is read. A class of its own: Spark refuses it without a setting."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the read by the conditions, and leave them all to Spark as well."""
        self._narrowed = narrow(filters)
        return filters
