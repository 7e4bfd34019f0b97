"""What an executor does: reads one span from the partition's owner and makes Arrow of it, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from delivery.batch import headers_in, open_at
from delivery.client.calls import count_messages
from delivery.errors import HootError, MetadataUnavailable
from delivery.metastore.live import Address
from delivery.rpc.idl import load_idl
from delivery.spark.columns import to_arrow
from delivery.spark.options import ReadOptions
from delivery.spark.planning import PATIENCE_SECONDS, Engine, engine
from delivery.spark.ranges import Span
from delivery.spark.tables import Piece, open_tables, pieces

CHECKED_AT_ONCE: Final = 16
"""So many answers of a host are read before it is asked whether something has vanished from them."""
READ_BYTES: Final = 1024 * 1024
"""Asked for at once: some ten thousand small messages, which is the size of Arrow batch that Spark likes best."""


class MessagesLost(HootError):
    """Messages that were to be read have been dropped by the queue's retention meanwhile."""

    code = "messages_lost"


class Task(InputPartition):
    """A span, as Spark carries it to an executor."""

    def __init__(
        self, span: Span, owner: Address | None, view: bytes | None = None, topics: Sequence[str] = (), rule: str = ""
    ) -> None:
        """`owner` is who had the partition when it was planned, if that is known.

        With a view, only what is committed by it is read. `topics` and `rule` are those of a stream's subscription,
        which the options do not tell.
        """
        super().__init__(None)
        self.owner, self.view = owner, view
        self.span = (span.queue, span.partition, span.after, span.until, span.messages)
        self.topics, self.rule = tuple(topics), rule

    def chosen(self, options: ReadOptions) -> ReadOptions:
        """The options with what only the driver knows."""
        topics, rule = self.topics or options.topics, self.rule or options.filter
        return msgspec.structs.replace(options, topics=topics, filter=rule)


def read_task(options: ReadOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """The messages of a task, whichever host owns the partition meanwhile.

    Raises MessagesLost, unless the options allow it, UnknownQueue, and what the owner refuses with.
    """
    if not isinstance(task, Task):
        return  # what Spark makes of an empty plan
    span, options = Span(*task.span), task.chosen(options)
    rows = 0
    chosen = options.topics or options.filter or task.view is not None
    known = {} if task.owner is None else {(span.queue, span.partition): task.owner}
    with engine(options.zookeeper, PATIENCE_SECONDS, known) as hosts:
        there = Watched(hosts, span) if options.fail_on_loss else None
        for part in _batches(hosts, options, span, task.view, there if chosen else None):
            rows += part.num_rows
            yield part
        if there is not None and rows != span.messages:
            there.check()


class Watched:
    """A span that is read, of which nothing may vanish before that.

    How many rows come of it tells only when they are as many as were counted: topics and filters leave some out, and
    messages that were stored before a transaction showed them are counted where it did, though retention may have
    dropped the bodies. What vanishes of the part that is read already is not lost.
    """

    def __init__(self, hosts: Engine, span: Span) -> None:
        self._hosts, self._span = hosts, span
        self._after, self._left, self._looks = span.after, span.messages, 0

    def passed(self, position: int) -> None:
        """All up to there has been read by now. Raises as `check`, at the end and now and then before it."""
        self._looks += 1
        if self._looks % CHECKED_AT_ONCE and position < self._span.until:
            return
        left = self._count(position) if position < self._span.until else 0
        self.check()  # behind it: so nothing of what is left had vanished when that was counted
        self._after, self._left = position, left

    def check(self) -> None:
        """Raises MessagesLost unless all is still stored that was to be read since the last look."""
        span, there = self._span, self._count(self._after) if self._left else 0
        if there < self._left:
            raise MessagesLost(
                f"{self._left - there} of {span.messages} messages of {span.queue}/{span.partition} between ids"
                f" {span.after} and {span.until} vanished before they were read; failOnDataLoss=false reads what is"
                " there"
            )

    def _count(self, after: int) -> int:
        span = self._span
        return count_messages(self._hosts.call, span.queue, span.partition, after, span.until)


def _batches(
    hosts: Engine, options: ReadOptions, span: Span, view: bytes | None, there: Watched | None
) -> Iterator[pa.RecordBatch]:
    after = span.after
    for data, position in _pieces(hosts, options, span, view):
        if there is not None:
            there.passed(position)
        batches = [open_at(data, at, header) for at, header in headers_in(data) if header.base_id <= span.until]
        if batches:
            yield to_arrow(batches, span.queue, options.columns, after, span.until)
        after = position


def _pieces(hosts: Engine, options: ReadOptions, span: Span, view: bytes | None) -> Iterator[Piece]:
    """Batches, and where they end, one piece behind the other: past the hosts as far as that goes."""
    after = span.after
    if options.hbase and view is None:
        generation = hosts.queue(span.queue).generation
        with closing(open_tables(options)) as tables:
            for piece in pieces(tables, options, generation, span, READ_BYTES):
                yield piece
                after = piece[1]
    while after < span.until:
        reply = _read(hosts, options, span, after, view)
        yield reply.batches, reply.position
        if reply.position <= after and view is not None:
            raise MetadataUnavailable(  # a manager that was taken over from has told what is committed
                f"a transaction that holds up {span.queue}/{span.partition} has come up since the read was planned"
            )
        if reply.position <= after:
            return  # what was there when the read was planned has been dropped by retention since
        after = reply.position


def _read(hosts: Engine, options: ReadOptions, span: Span, after: int, view: bytes | None) -> Any:
    request = load_idl("delivery").ReadRequest(
        queue=span.queue, partition=span.partition, after=after, upTo=span.until, topics=list(options.topics),
        bytesMax=READ_BYTES, waitMs=0, filter=options.filter or None, transaction=view,
    )  # fmt: skip
    return hosts.call(span.queue, span.partition, "read", request)
