"""What Spark asks to store rows: the writers of a batch and of a stream."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from delivery.spark.cutting import Origin
from delivery.spark.sinkoptions import WriteOptions
from delivery.spark.writing import write_paced, write_task

_QUERY = "sql.streaming.queryId"
_MICRO_BATCH = "streaming.sql.batchId"


class HootWriter(DataSourceArrowWriter):
    """Stores the rows of a batch. Its identity was chosen in the driver, so that all runs of a task have the same."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of a task; they are stored when this returns. Raises as `write_task`."""
        options = self._options
        origin = Origin(f"write {options.write_id}", _task().partitionId())
        if options.rate:
            write_paced(options.zookeeper, options.queue, origin, iterator, options.rate)
        else:
            write_task(options.zookeeper, options.queue, origin, iterator)
        return WriterCommitMessage()


class HootStreamWriter(DataSourceStreamArrowWriter):
    """Stores the rows of a stream, batch by batch, under the query's id, which is in its checkpoint."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of a task of a micro-batch; they are stored when this returns. Raises as `write_task`."""
        task = _task()
        query, number = task.getLocalProperty(_QUERY), task.getLocalProperty(_MICRO_BATCH)
        assert query, "Spark tells the tasks of a stream their query"
        assert number, "and their micro-batch"
        origin = Origin(f"stream {query}", task.partitionId(), int(number))
        write_task(self._options.zookeeper, self._options.queue, origin, iterator)
        return WriterCommitMessage()


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written in tasks"
    return task
