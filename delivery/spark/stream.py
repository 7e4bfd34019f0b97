"""The reader of a stream. Its offsets are positions: the lowest id that is not read yet, per queue and partition.

The driver keeps one reader, with one connection to ZooKeeper, for as long as the query runs. Executors get copies that
open connections of their own. A batch that is replayed after a failure is planned from the same offsets and gives the
same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from delivery.spark.options import ReadOptions, as_offsets, from_offsets
from delivery.spark.planning import Engine, engine, stream_begin
from delivery.spark.ranges import Held, Place, Span, shares
from delivery.spark.reading import Task, read_task


class HootStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in the driver, reads in the executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._open: tuple[ExitStack, Engine] | None = None
        self._last: dict[Place, int] | None = None
        """With the trigger AvailableNow, where the stream ends."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}  # connections are the driver's

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - Spark's names, here and below
        """Where a new query begins. Raises UnknownQueue, NoHost, MetadataUnavailable."""
        return as_offsets(stream_begin(self._options, self._held()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One limit of Spark's; where both are given, `latestOffset` heeds both."""
        if self._options.messages_max:
            return ReadMaxRows(self._options.messages_max)
        return ReadMaxBytes(self._options.bytes_max) if self._options.bytes_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Up to where the next batch reads: what is complete now, or as much of it as the limits allow."""
        known = from_offsets(start)
        held = self._held(known)
        spans = [self._span(place, known, one) for place, one in held.items()]
        ends = known | {(span.queue, span.partition): span.until for span in spans}
        if not isinstance(limit, ReadAllAvailable):
            ends |= self._limited(spans, held)
        return as_offsets(ends)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """What is complete now, for Spark's figures."""
        return as_offsets({place: one.last_id for place, one in self._held().items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End with what is complete now."""
        self._last = {place: one.last_id for place, one in self._held().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        begins = from_offsets(start)
        spans = [Span(*place, begins.get(place, -1), until) for place, until in from_offsets(end).items()]
        hosts, options = self._engine(), self._options
        view = hosts.view(options)
        return [Task(span, view) for span in hosts.tasks(spans, options.tasks_min)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a task, as Arrow."""
        return read_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's own checkpoint is what counts."""

    def stop(self) -> None:
        """Close the connections."""
        opened, self._open = self._open, None
        if opened is not None:
            opened[0].close()

    def _engine(self) -> Engine:
        if self._open is None:
            stack = ExitStack()
            self._open = stack, stack.enter_context(engine(self._options.zookeeper))
        return self._open[1]

    def _held(self, known: Mapping[Place, int] | None = None) -> dict[Place, Held]:
        return self._engine().held(self._options, known or {})

    def _span(self, place: Place, known: Mapping[Place, int], held: Held) -> Span:
        """What there is to be read; all of a partition that came later."""
        last = held.last_id if self._last is None else min(held.last_id, self._last.get(place, held.last_id))
        after = known.get(place, held.first_id - 1)
        return Span(*place, after, max(after, last))

    def _limited(self, spans: list[Span], held: Mapping[Place, Held]) -> dict[Place, int]:
        """Where to end so that no more is read than the limits say."""
        hosts, options = self._engine(), self._options
        waiting = {(span.queue, span.partition): span for span in hosts.counted(spans)}
        counts = {place: span.messages for place, span in waiting.items()}
        allowed = shares(counts, options.messages_max or sum(counts.values()))
        if options.bytes_max:
            sizes = {place: held[place].bytes / max(1, held[place].messages) for place in waiting}
            total = sum(count * sizes[place] for place, count in counts.items())
            part = min(1.0, options.bytes_max / max(1.0, total))
            allowed = {place: min(allowed[place], max(1, int(count * part))) for place, count in counts.items()}
        found = {}
        for place, span in waiting.items():
            whole = allowed[place] >= span.messages
            found[place] = span.until if whole else hosts.located(span, [allowed[place]])[0]
        return found
