"""The newest batches of all partitions in memory, so that a subscription that keeps up never reads a disk.

Bounded by bytes over all partitions; what was appended first goes first. Used from one thread, trio's: nothing here
blocks or waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from delivery.batch import Header
from delivery.batch.select import Refuses, dictionary_in
from delivery.storage.base import Chunk, PartitionKey

_GAP_MAX = 1024
"""Dropped entries at the front of a tail before its lists are moved up: keeps an eviction cheap on average."""


_AT_ONCE = 2048
"""One read looks at so many batches: it takes a few milliseconds of the event loop where all of them are refused."""


class _Tail:
    """The newest batches of one partition: everything with an id above `floor`, up to the end."""

    __slots__ = ("batches", "floor", "last_ids", "start")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.batches: list[tuple[Header, bytes] | None] = []
        self.last_ids: list[int] = []
        self.start = 0

    def last_id(self) -> int:
        return self.last_ids[-1] if self.last_ids else self.floor

    def evict(self) -> int:
        """Forget the oldest batch; the bytes freed."""
        oldest = self.batches[self.start]
        assert oldest is not None
        header, batch = oldest
        self.batches[self.start] = None
        self.floor = header.last_id
        self.start += 1
        if (self.start > _GAP_MAX and self.start * 2 > len(self.batches)) or self.start == len(self.batches):
            del self.batches[: self.start], self.last_ids[: self.start]
            self.start = 0
        return len(batch)


class TailCache:
    """A cache of stored batches by partition, to be fed in order with what became readable."""

    def __init__(self, bytes_max: int) -> None:
        """Hold at most `bytes_max` bytes of batches."""
        self.bytes_max = bytes_max
        self.bytes = 0
        """What is held now."""
        self._tails: dict[PartitionKey, _Tail] = {}
        self._order: deque[_Tail] = deque()

    def begin(self, key: PartitionKey, last_id: int) -> None:
        """Start anew with a partition that holds ids up to `last_id`: from there on the cache covers it."""
        self.drop(key)
        self._tails[key] = _Tail(last_id)

    def append(self, key: PartitionKey, header: Header, batch: bytes) -> None:
        """Take the partition's next batch and, for room, let go of the oldest ones of any partition.

        A partition that was not begun is covered from this batch on.
        """
        tail = self._tails.get(key)
        if tail is None:
            tail = self._tails[key] = _Tail(header.base_id - 1)
        assert header.base_id > tail.last_id(), f"{key}: base id {header.base_id} is not above {tail.last_id()}"
        tail.batches.append((header, batch))
        tail.last_ids.append(header.last_id)
        self._order.append(tail)
        self.bytes += len(batch)
        while self.bytes > self.bytes_max:
            self.bytes -= self._order.popleft().evict()

    def covers(self, key: PartitionKey, after: int) -> bool:
        """Whether everything above `after` is here, so that `read` giving None means that there is nothing new."""
        tail = self._tails.get(key)
        return tail is not None and after >= tail.floor

    def read(self, key: PartitionKey, after: int, bytes_max: int, refuses: Refuses | None = None) -> Chunk | None:
        """The next whole batches above `after`, at most `bytes_max` but at least one; None without any.

        Refused ones are left out. Only for an `after` that is covered. A chunk of one batch is that batch's own bytes,
        not a copy.
        """
        tail = self._tails.get(key)
        if tail is None or after < tail.floor:
            return None
        headers: list[Header] = []
        parts: list[bytes] = []
        room = bytes_max
        covered: int | None = None
        first = bisect_right(tail.last_ids, after, tail.start)
        for place in range(first, min(len(tail.batches), first + _AT_ONCE)):
            entry = tail.batches[place]
            assert entry is not None
            header, batch = entry
            if refuses is not None and refuses(header, dictionary_in(header, batch)):
                covered = header.last_id
                continue
            room -= len(batch)
            if room < 0 and parts:
                break
            headers.append(header)
            parts.append(batch)
            covered = None if covered is None else header.last_id
        if not parts and covered is None:
            return None
        return Chunk(parts[0] if len(parts) == 1 else b"".join(parts), tuple(headers), covered)

    def drop(self, key: PartitionKey) -> None:
        """Forget a partition. An unknown one is fine."""
        tail = self._tails.pop(key, None)
        if tail is not None:
            self.bytes -= sum(len(entry[1]) for entry in tail.batches if entry is not None)
            self._order = deque(each for each in self._order if each is not tail)
