"""The scanners of the plain calls: open, next, close (HQueue's multi-language calls; idle timeout as HBase's lease).

A scanner is kept on the host between calls, so there is a table with an idle timeout and a cap. What a scanner reads
from several partitions comes merged by id as far as it is there: of the partitions that have something, the lowest id
first. A scanner that has reached the end stays open, and goes on when there is more.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final

import msgspec
import trio

from delivery.batch import headers_in, is_aside, open_batch, select
from delivery.errors import HootError, InvalidRequest, Throttled, UnknownScanner
from delivery.filters import Filter
from delivery.ids import ID_MAX
from delivery.model import Message
from delivery.rpc.messages import plain_bytes
from delivery.storage.base import Chunk

_CHUNK_BYTES: Final = 64 * 1024
_SCANNER_IDS: Final = 2**31 - 1
_LIST_BYTES_MAX: Final = 3 * 1024 * 1024
"""A list of messages ends behind this many bytes, so that with the largest message on top it fits every frame."""

ReadPartition = Callable[[str, int, int, int], Awaitable[Chunk | None]]
"""Reads (queue, partition, after, bytes_max): the next whole batches."""


class Range(msgspec.Struct, frozen=True):
    """What of a partition is wanted."""

    start_id: int = 0
    """The first id wanted."""
    stop_id: int = ID_MAX
    """The first id not wanted."""
    filter: Filter | None = None
    """Empty for all."""


class Cursor:
    """The place of a scanner in one partition, with the messages that were read and not yet given."""

    def __init__(self, queue: str, partition: int, wanted: Range) -> None:
        self.queue, self.partition = queue, partition
        self._wanted = wanted
        self._after = wanted.start_id - 1
        self._ready: list[Message] = []
        """In falling order: the next one is the last."""

    @property
    def head(self) -> Message | None:
        """The next message, if there is one at hand."""
        return self._ready[-1] if self._ready else None

    def pop(self) -> Message:
        """The next message, which must be at hand."""
        return self._ready.pop()

    async def fill(self, read: ReadPartition) -> bool:
        """Read on until a message is at hand; False when there is none now."""
        while not self._ready:
            if self._after >= self._wanted.stop_id - 1:
                return False
            chunk = await read(self.queue, self.partition, self._after, _CHUNK_BYTES)
            if chunk is None:
                return False
            self._ready = self._messages(chunk)[::-1]
            self._after = chunk.last_id
        return True

    def _messages(self, chunk: Chunk) -> list[Message]:
        wanted, found = self._wanted, []
        for at, header in headers_in(chunk.data):
            data: bytes | None = None if is_aside(header) else chunk.data[at : at + header.length]
            if wanted.filter is not None and data is not None:
                data = select(header, data, wanted.filter)
            if data is not None:
                found += [m for m in open_batch(data).messages(self.queue, self._after) if m.number < wanted.stop_id]
        return found


class Scanner:
    """Cursors merged by id. One call at a time; a second waits for the first."""

    def __init__(self, cursors: Sequence[Cursor]) -> None:
        self.cursors = cursors
        self.lock = trio.Lock()

    async def take(self, wanted: int, read: ReadPartition) -> list[Message]:
        """Up to `wanted` messages; none when nothing is there now.

        An error of one partition leaves everything in place: the next call goes on where this one would have.
        """
        async with self.lock:
            for cursor in self.cursors:
                await cursor.fill(read)
            heap = [(cursor.head.number, i) for i, cursor in enumerate(self.cursors) if cursor.head is not None]
            heapq.heapify(heap)
            taken: list[Message] = []
            size = 0
            while heap and len(taken) < wanted and size < _LIST_BYTES_MAX:
                _, place = heapq.heappop(heap)
                cursor = self.cursors[place]
                taken.append(cursor.pop())
                size += plain_bytes(taken[-1])
                if cursor.head is None:
                    with contextlib.suppress(HootError):  # what was taken must get out; the next call meets the error
                        await cursor.fill(read)
                if cursor.head is not None:
                    heapq.heappush(heap, (cursor.head.number, place))
            return taken


class ScannerTable:
    """Who has which scanner open. Plain; `now` is a monotonic clock in seconds."""

    def __init__(self, idle_seconds: float, partitions_max: int, first_id: int = 1) -> None:
        """Scanners not used for `idle_seconds` are closed; all of them read `partitions_max` partitions at most."""
        self._idle_seconds, self._partitions_max = idle_seconds, partitions_max
        self._ids = count(first_id)
        self._open: dict[int, tuple[Scanner, float]] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, scanner: Scanner, now: float) -> int:
        """Keep a scanner; its id. Raises Throttled when too many partitions are being read already."""
        self.expire(now)
        if self._partitions + len(scanner.cursors) > self._partitions_max:
            raise Throttled(
                f"open scanners read {self._partitions} of at most {self._partitions_max} partitions: close some first"
            )
        self._partitions += len(scanner.cursors)
        scanner_id = next(number for number in self._ids if number % _SCANNER_IDS not in self._open) % _SCANNER_IDS
        self._open[scanner_id] = (scanner, now)
        return scanner_id

    def use(self, scanner_id: int, now: float) -> Scanner:
        """The scanner, which is in use now. Raises UnknownScanner when it was closed, timed out, or never opened."""
        self.expire(now)
        found = self._open.get(scanner_id)
        if found is None:
            raise UnknownScanner(
                f"scanner {scanner_id} is not open: it was closed, or not used for {self._idle_seconds:g} s"
            )
        self._open[scanner_id] = (found[0], now)
        return found[0]

    def close(self, scanner_id: int) -> None:
        """Forget a scanner. Closing it twice is fine."""
        found = self._open.pop(scanner_id, None)
        if found is not None:
            self._partitions -= len(found[0].cursors)

    def expire(self, now: float) -> None:
        """Close what was not used for too long; a scanner that is reading at this moment is in use."""
        over = now - self._idle_seconds
        for scanner_id in [i for i, (scanner, used) in self._open.items() if used < over and not scanner.lock.locked()]:
            self.close(scanner_id)


def check_range(start_id: int | None, stop_id: int | None, wanted: Filter | None) -> Range:
    """A range with its defaults: from the oldest message, without an end. Raises InvalidRequest."""
    start, stop = start_id or 0, ID_MAX if stop_id is None else stop_id
    if start < 0 or stop < 0:
        raise InvalidRequest(f"a scan starts and stops at message ids, not at {start} and {stop}")
    return Range(start, stop, wanted)
