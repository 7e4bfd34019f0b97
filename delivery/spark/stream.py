"""The reader of a stream. Its offsets are positions: the lowest id that is not read yet, per queue and partition.

The driver keeps one reader, with one connection to ZooKeeper, for as long as the query runs. Executors get copies that
open connections of their own. A batch that is replayed after a failure is planned from the same offsets and gives the
same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec
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
from delivery.spark.planning import PATIENCE_SECONDS, Engine, check_short_cut, engine, patiently, stream_begin
from delivery.spark.ranges import Held, Place, Span, allowances, lost
from delivery.spark.reading import MessagesLost, Task, read_task
from delivery.spark.seat import Seat
from delivery.spark.subscribing import MARK, marked

T = TypeVar("T")


class HootStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in the driver, reads in the executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._open: tuple[ExitStack, Engine, Seat | None] | None = None
        self._last: dict[Place, int] | None = None
        """With the trigger AvailableNow, where the stream ends."""
        self._left: dict[Place, Span] = {}
        """What limits have left to later batches."""
        self._agreed = False
        """Whether Spark's checkpoint and the subscription were found to agree."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}  # connections are the driver's

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Where a new query begins: where its subscription stands, or as the options say.

        Raises UnknownQueue, SubscriptionBusy, InvalidRequest, NoHost, MetadataUnavailable.
        """
        seat = self._opened()[1]
        if seat is None:
            return as_offsets(stream_begin(self._options, self._held()))
        self._agreed = True
        return self._offset({(seat.record.queue, number): at for number, at in seat.positions.items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One limit of Spark's; where both are given, `latestOffset` heeds both."""
        if self._options.messages_max:
            return ReadMaxRows(self._options.messages_max)
        return ReadMaxBytes(self._options.bytes_max) if self._options.bytes_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Up to where the next batch reads: what is complete now, or as much of it as the limits allow.

        Spark asks when the batch that ended at `start` is entered as done: so its subscription has reached that.
        """
        return self._patiently(lambda: self._next(start, limit))

    def _next(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        known = from_offsets(start)
        if not self._may_go_on(start):
            return start
        held = self._held(known)
        spans = [self._span(place, known, one) for place, one in held.items()]
        ends = known | {(span.queue, span.partition): span.until for span in spans}
        if not isinstance(limit, ReadAllAvailable):
            ends |= self._limited(spans, held)
        return self._offset(ends)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """What is complete now, for Spark's figures."""
        return self._patiently(lambda: self._offset({place: one.last_id for place, one in self._held().items()}))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End with what is complete now."""
        self._last = {place: one.last_id for place, one in self._held().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        return self._patiently(lambda: self._tasks(start, end))

    def _tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._agreeing(start)
        begins, read = from_offsets(start), self._read
        spans = [Span(*place, begins.get(place, 0), until) for place, until in from_offsets(end).items()]
        hosts = self._engine()
        view = hosts.view(read.isolation)
        return [
            Task(span, hosts.owner((span.queue, span.partition)), view, read.topics, read.filter)
            for span in hosts.tasks(spans, read.tasks_min)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a task, as Arrow."""
        return read_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is left to do: what Spark says here, with the next batch, `latestOffset` heard before it."""

    def stop(self) -> None:
        """Close the connections."""
        opened, self._open = self._open, None
        if opened is not None:
            opened[0].close()

    def _opened(self) -> tuple[Engine, Seat | None]:
        if self._open is None:
            with ExitStack() as stack:
                hosts = stack.enter_context(engine(self._options.zookeeper))
                check_short_cut(hosts, self._options)
                seat = None
                if self._options.subscription:
                    seat = Seat(hosts, self._options)
                    stack.callback(seat.leave)
                self._open = stack.pop_all(), hosts, seat
        return self._open[1:]

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """A host or ZooKeeper that is away for a while ends no stream that runs; one that cannot begin ends at once."""
        self._opened()
        return patiently(attempt, PATIENCE_SECONDS)

    def _engine(self) -> Engine:
        return self._opened()[0]

    @property
    def _read(self) -> ReadOptions:
        """What is read: what the options say, or the subscription."""
        seat = self._opened()[1]
        return self._options if seat is None else seat.options

    def _agreeing(self, begins: Mapping[str, Any]) -> Seat | None:
        """The seat, with which Spark's checkpoint agrees; asked once. Raises PositionsDiffer."""
        seat = self._opened()[1]
        if seat is not None and not self._agreed:
            seat.check(_in(seat, begins), marked(begins))
            self._agreed = True
        return seat

    def _may_go_on(self, start: Mapping[str, Any]) -> bool:
        """Whether a next batch may be planned, now that all before `start` is done."""
        seat = self._agreeing(start)
        if seat is None:
            return True
        seat.reached(_in(seat, start))
        return seat.is_open()

    def _offset(self, positions: Mapping[Place, int]) -> dict[str, Any]:
        seat = self._opened()[1]
        return as_offsets(positions) | ({} if seat is None else {MARK: msgspec.structs.asdict(seat.mark)})

    def _held(self, known: Mapping[Place, int] | None = None) -> dict[Place, Held]:
        hosts, read = self._engine(), self._read
        return hosts.held(hosts.places(read), read.isolation, known or {})

    def _span(self, place: Place, known: Mapping[Place, int], held: Held) -> Span:
        """What there is to be read; all of a partition that came later, unless the stream is to end before that."""
        last = held.last_id if self._last is None else min(held.last_id, self._last.get(place, -1))
        after = known.get(place, max(0, held.first_id - 1))
        return Span(*place, after, max(after, last))

    def _limited(self, spans: list[Span], held: Mapping[Place, Held]) -> dict[Place, int]:
        """Where to end so that no more is read than the limits say."""
        hosts, options = self._engine(), self._options
        waiting = {(span.queue, span.partition): span for span in hosts.counted(spans)}
        if options.fail_on_loss and (gone := lost(self._left, waiting)):
            raise MessagesLost(
                f"{gone.messages} messages of {gone.queue}/{gone.partition} behind id {gone.after} vanished before the"
                " stream got to them; failOnDataLoss=false reads what is there"
            )
        allowed = allowances(waiting, held, options.messages_max, options.bytes_max)
        found = {}
        for place, span in waiting.items():
            whole = allowed[place] >= span.messages
            found[place] = span.until if whole else hosts.located(span, [allowed[place]])[0]
        self._left = {
            place: Span(*place, found[place], span.until, left)
            for place, span in waiting.items()
            if (left := span.messages - allowed[place]) > 0
        }
        return found


def _in(seat: Seat, offset: Mapping[str, Any]) -> dict[int, int]:
    """By partition of the subscription's queue, the id up to which the stream has read."""
    return {number: at for (queue, number), at in from_offsets(offset).items() if queue == seat.record.queue}
