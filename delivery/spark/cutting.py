"""A task's rows cut into record batches, so that the same rows in the same order give the same batches.

How Spark has divided the rows into Arrow batches does not count: they are gathered into blocks by their number and
bytes, the rows of a block go to their partitions, and what goes to one partition is divided by number and bytes again.
So a task that runs again sends every batch again as it was, under the same producer and sequence, and what is stored
is not stored twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from delivery.batch.arrow import pack
from delivery.errors import InvalidRequest
from delivery.metastore.records import QueueRecord
from delivery.model import check_partition, partition_of
from delivery.spark.incoming import check_sizes, grouped, incoming, running_bytes

# A batch's rows and bytes, and a block's. They are part of what makes a task that runs again send the same batches:
# a change of them breaks that for jobs that are under way.
BATCH_ROWS: Final = 16384
BATCH_BYTES: Final = 1024 * 1024
BLOCK_ROWS: Final = 65536
BLOCK_BYTES: Final = 8 * 1024 * 1024

ROUNDS_MAX: Final = 2**31 - 1
_ROUND_SHIFT: Final = 32
_ANYWHERE: Final = -1


class Origin(msgspec.Struct, frozen=True):
    """Where rows come from: what makes a batch of them the same batch when it comes again."""

    name: str
    """The query, or the write."""
    task: int
    """Number of the partition of Spark's."""
    round: int = 0
    """Number of the micro-batch."""

    def producer(self, queue: str) -> int:
        """The producer's id, of 63 bits. It stays from round to round, so that a host has no more to remember."""
        digest = blake2b(f"{self.name}\0{self.task}\0{queue}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) >> 1 or 1

    def sequence(self, number: int) -> int:
        """The sequence of a round's batch, from 1 on: each round begins anew (see batch.sequences)."""
        return self.round << _ROUND_SHIFT | number


class Cut(msgspec.Struct, frozen=True):
    """A batch to be stored."""

    queue: QueueRecord
    partition: int
    data: bytes
    whole: bool
    """Whether these are all rows of the task that go that way: the same rows in whatever order they come."""


class Cutter:
    """The rows of one task on their way into batches. Holds a block of them at most."""

    def __init__(self, origin: Origin, queue: str, find: Callable[[str], QueueRecord], *, alone: bool = True) -> None:
        """`queue` is where all rows go, "" when each names its own; `find` raises UnknownQueue.

        `alone` says that these are all rows of the task, and not a piece of them.
        """
        if not 0 <= origin.round <= ROUNDS_MAX:
            raise InvalidRequest(f"micro-batch {origin.round} cannot be numbered")
        self._origin, self._queue, self._find, self._alone = origin, queue, find, alone
        self._known: dict[str, QueueRecord] = {}
        self._block: list[pa.RecordBatch] = []
        self._count = self._bytes = self._blocks = 0
        self._numbers: dict[tuple[str, int], int] = {}
        """Batches so far, by queue and partition."""
        self._turns: dict[str, int] = {}
        """By queue, the place in the round of partitions of what may go anywhere."""

    def add(self, rows: pa.RecordBatch) -> Iterator[Cut]:
        """Take rows; gives what is full by that. Raises as `incoming`, UnknownQueue, UnknownPartition."""
        rows = incoming(rows, queue_given=bool(self._queue))
        ends = running_bytes(rows)
        at = 0
        while at < len(ends):
            until = fitting(ends, at, BLOCK_ROWS - self._count, BLOCK_BYTES - self._bytes)
            if until == at and not self._count:
                until = at + 1  # larger than a block, and by itself in one
            if until > at:
                self._keep(rows.slice(at, until - at), ends[until - 1] - (ends[at - 1] if at else 0))
            if until < len(ends):
                yield from self._of_block(last=False)
            at = until

    def finish(self) -> Iterator[Cut]:
        """What was taken and not given yet; nothing follows."""
        if self._block:
            yield from self._of_block(last=True)

    def _keep(self, rows: pa.RecordBatch, size: int) -> None:
        self._block.append(rows)
        self._count += len(rows)
        self._bytes += size

    def _of_block(self, *, last: bool) -> Iterator[Cut]:
        block, only = _joined(self._block), last and not self._blocks and self._alone
        self._block, self._count, self._bytes, self._blocks = [], 0, 0, self._blocks + 1
        if self._queue:
            yield from self._of_queue(self._queue, block, only=only)
            return
        names = block["queue"].dictionary_encode()
        for number, rows in grouped(block, names.indices):
            yield from self._of_queue(names.dictionary[number].as_py(), rows, only=only)

    def _of_queue(self, name: str, rows: pa.RecordBatch, *, only: bool) -> Iterator[Cut]:
        queue = self._known.get(name)
        if queue is None:
            queue = self._known[name] = self._find(name)
        partitions = queue.settings.partitions
        check_sizes(rows, name, queue.settings)
        for partition, some in grouped(rows, places(rows, name, partitions)):
            divided = list(pieces(some))
            for piece in divided:
                chosen = self._next(name, partitions) if partition == _ANYWHERE else partition
                yield Cut(queue, chosen, self._packed(name, chosen, piece), only and len(divided) == 1)

    def _next(self, queue: str, partitions: int) -> int:
        turn = self._turns.get(queue, self._origin.task + self._origin.round)
        self._turns[queue] = turn + 1
        return turn % partitions

    def _packed(self, queue: str, partition: int, rows: pa.RecordBatch) -> bytes:
        number = self._numbers[queue, partition] = self._numbers.get((queue, partition), 0) + 1
        producer, sequence = self._origin.producer(queue), self._origin.sequence(number)
        return pack(rows, partition, producer, sequence)


def places(rows: pa.RecordBatch, queue: str, partitions: int) -> pa.Array:
    """The partition of each row: the one that it names, the one of its key, or -1 when it may go anywhere."""
    chosen = pa.repeat(pa.scalar(_ANYWHERE, pa.int32()), len(rows))
    names = rows.schema.names
    if "key" in names:
        keys = rows["key"].dictionary_encode()
        those = pa.array([partition_of(key, partitions) for key in keys.dictionary.to_pylist()], pa.int32())
        chosen = pc.coalesce(those.take(keys.indices), chosen)
    if "partition" in names:
        given = pc.min_max(rows["partition"])
        for edge in ("min", "max"):
            if (number := given[edge].as_py()) is not None:
                check_partition(number, partitions, queue)
        chosen = pc.coalesce(rows["partition"], chosen)
    return chosen


def pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, as many at a time as a batch has."""
    ends = running_bytes(rows)
    at = 0
    while at < len(ends):
        until = max(at + 1, fitting(ends, at, BATCH_ROWS, BATCH_BYTES))
        yield rows.slice(at, until - at)
        at = until


def fitting(ends: Sequence[int], at: int, count: int, size: int) -> int:
    """Up to where the rows from `at` on fit into so many rows and bytes; `ends` are running bytes."""
    before = ends[at - 1] if at else 0
    return min(bisect_right(ends, before + size, lo=at), at + count)


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
