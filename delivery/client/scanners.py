"""Scanners: reading a queue from the outside, as many messages as one asks for (seed 004, section 3.4).

    QueueScanner               all partitions
    PartitionScanner           one
    CombinedPartitionScanner   some

Several partitions are merged by id, so messages come in the order in which the hosts took them, as far as the hosts'
clocks agree. A scanner reads whole batches ahead, a chunk per partition. It holds nothing on the host.

The end is where the partition was complete when the scanner last asked: `next` then gives None. It asks again each
time, so a later `next` may find more. With `follow` the end is not the end: `next` waits for what comes.
"""

from __future__ import annotations

import heapq
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import msgspec

from delivery import wall
from delivery.batch import headers_in, open_batch
from delivery.client.calls import Calls, partition_info
from delivery.errors import InvalidRequest, ScannerClosed
from delivery.filters import FilterSpec, check_pattern, parse_rule, rule_json
from delivery.ids import ID_MAX, LATEST, Start, check_start, first_id_at
from delivery.model import Isolation, Message
from delivery.rpc.protocol import load_idl

READ_BYTES = 1024 * 1024
"""What is asked for at once, per partition."""
READ_BYTES_MIN = 16 * 1024
READ_AHEAD_BYTES = 64 * 1024 * 1024
"""What a scanner over many partitions reads ahead of all together, about."""
NEXT_BATCH_MAX = 100_000
FOLLOW_SECONDS = 1.0
"""How long the host is asked to wait for something new, so that `close` from another thread is soon seen."""
FOLLOW_SECONDS_EACH = 0.1
"""The same with several partitions, which are waited for in turn."""


View = Callable[[], bytes]
"""Gives what is committed now, for a read."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a scanner reads."""

    start: Start = "earliest"
    """The first message wanted."""
    stop: Start | None = None
    """The first message not wanted; None for no end, `latest` for the end of now."""
    topics: Sequence[str] = ()
    """Only messages with one of these, names and patterns; none for all."""
    filter: FilterSpec | None = None
    """Only messages for which this holds; see docs/filters.md."""
    follow: bool = False
    """Whether `next` waits at the end instead of giving None."""
    timeout: float = 30.0
    """How long a read is tried while the host cannot be reached."""
    isolation: Isolation = "uncommitted"
    """With `committed` nothing of a transaction before its commit: what is in progress is an end; `follow` waits."""


class Scanner(ABC):
    """What all scanners can do. For one thread at a time (but `close`); close it, or use it as a context manager."""

    queue: str
    follows: bool
    """Whether `next` waits at the end."""

    @abstractmethod
    def next(self, timeout: float | None = None) -> Message | None:
        """The next message; None at the end, or with `follow` when `timeout` seconds have passed.

        Raises ScannerClosed, UnknownQueue, HostUnreachable and other errors of reading; the scanner keeps its place.
        """

    def next_batch(self, count: int, timeout: float | None = None) -> list[Message]:
        """Up to `count` (1 to 100,000) messages: those until the end; with `follow` at least one, unless time is up."""
        if not 1 <= count <= NEXT_BATCH_MAX:
            raise InvalidRequest(f"a batch of messages is 1 to {NEXT_BATCH_MAX}, not {count}")
        found = []
        message = self.next(timeout)
        while message is not None:
            found.append(message)
            message = self.next(0.0) if len(found) < count else None
        return found

    def get_list(self, count: int) -> list[Message]:
        """`next_batch` under the name of HQueue's multi-language scanners."""
        return self.next_batch(count)

    @abstractmethod
    def close(self) -> None:
        """Give up what was read ahead; `next` raises ScannerClosed from now on. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """The next message; stops at the end, with `follow` never."""
        message = self.next()
        if message is None:
            raise StopIteration
        return message


class PartitionScanner(Scanner):
    """One partition's messages in order."""

    def __init__(
        self, calls: Calls, queue: str, partition: int, scope: Scope, view: View | None = None,
        read_bytes: int = READ_BYTES,
    ) -> None:  # fmt: skip
        """Finds the place to start; `view` is for `committed`. Raises InvalidRequest when the place lies in the future.

        Also UnknownQueue, NoHost.
        """
        self._view = view
        self.queue, self.partition, self.follows = queue, partition, scope.follow
        self._calls, self._scope, self._read_bytes = calls, scope, read_bytes
        self._topics = [check_pattern(topic) for topic in scope.topics]
        self._filter = None if scope.filter is None else rule_json(parse_rule(scope.filter))
        self._request = load_idl("delivery").ReadRequest
        self._closed = False
        self._ready: Iterator[Message] = iter(())
        self._stop = ID_MAX if scope.stop is None else self._resolve(scope.stop)
        self._after = self._resolve(scope.start, start=True) - 1

    def next(self, timeout: float | None = None) -> Message | None:
        """See Scanner.next."""
        return self._next(timeout, FOLLOW_SECONDS if self.follows else 0.0)

    def poll(self, wait: float) -> Message | None:
        """The next message if it comes within `wait` seconds, which the host waits through; `follow` plays no part."""
        return self._next(wait, wait)

    def close(self) -> None:
        """See Scanner.close."""
        self._closed = True
        self._ready = iter(())

    def _next(self, timeout: float | None, wait: float) -> Message | None:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._closed:
                raise ScannerClosed("the scanner is closed")
            message = next(self._ready, None)
            if message is not None:
                return message
            if self._after + 1 >= self._stop:
                return None
            left = wait if end is None else min(wait, end - time.monotonic())
            if not self._read(max(0.0, left)) and left <= 0:
                return None

    def _read(self, wait: float) -> bool:
        """Read on. False when there was nothing more."""
        request = self._request(
            queue=self.queue, partition=self.partition, after=self._after, upTo=self._stop - 1, topics=self._topics,
            bytesMax=self._read_bytes, waitMs=round(wait * 1000), filter=self._filter,
            transaction=None if self._view is None else self._view(),
        )  # fmt: skip
        reply = self._calls.call(self.queue, self.partition, "read", request, timeout=self._scope.timeout, wait=wait)
        moved = reply.position > self._after
        if reply.batches:
            self._ready = self._messages(reply.batches, self._after)
        self._after = max(self._after, reply.position)
        return bool(reply.batches) or (moved and reply.position < reply.watermark)

    def _messages(self, chunk: bytes, after: int) -> Iterator[Message]:
        for at, header in headers_in(chunk):
            messages = open_batch(chunk[at : at + header.length], header).messages(self.queue, after)
            if header.last_id < self._stop:
                yield from messages
            else:
                yield from (message for message in messages if message.number < self._stop)

    def _resolve(self, place: Start, *, start: bool = False) -> int:
        """The id at a place."""
        after = check_start(place)
        if after == LATEST:
            return self._last_id() + 1
        in_future = start and after >= first_id_at(wall.ms() + 1)
        if in_future and after > self._last_id():
            raise InvalidRequest(f"the start {str(place)[:40]} lies in the future")
        return after + 1

    def _last_id(self) -> int:
        return int(partition_info(self._calls.call, self.queue, self.partition, timeout=self._scope.timeout).lastId)


class CombinedPartitionScanner(Scanner):
    """Several partitions, merged by id."""

    def __init__(
        self, calls: Calls, queue: str, partitions: Sequence[int], scope: Scope, view: View | None = None
    ) -> None:  # fmt: skip
        """Finds the places to start; errors as PartitionScanner, and InvalidRequest for no partitions."""
        if not partitions:
            raise InvalidRequest("a scanner needs at least one partition")
        self.queue, self.partitions, self.follows = queue, tuple(partitions), scope.follow
        read_bytes = max(READ_BYTES_MIN, min(READ_BYTES, READ_AHEAD_BYTES // len(partitions)))
        self._parts = [PartitionScanner(calls, queue, partition, scope, view, read_bytes) for partition in partitions]
        self._heads: list[tuple[int, int, Message]] = []
        """Per partition that is not dry its next message: (id, place in `_parts`, message), a heap."""
        self._dry = list(range(len(self._parts)))
        self._look_at = 0.0
        """When the dry ones are asked again though others are not: else a busy partition would hide them for ever."""
        self._closed = False

    def next(self, timeout: float | None = None) -> Message | None:
        """See Scanner.next; of the partition whose next message has the lowest id."""
        end = None if timeout is None else time.monotonic() + timeout
        if self._dry and (not self._heads or time.monotonic() >= self._look_at):
            self._look(0.0)
        while not self._heads:
            left = FOLLOW_SECONDS_EACH if end is None else min(FOLLOW_SECONDS_EACH, end - time.monotonic())
            if not self.follows or left <= 0 or self._closed:
                break
            self._look(left)
        if self._closed:
            raise ScannerClosed("the scanner is closed")
        if not self._heads:
            return None
        _, place, message = self._heads[0]
        following = self._parts[place].poll(0.0)
        if following is None:
            heapq.heappop(self._heads)
            self._dry.append(place)
        else:
            heapq.heapreplace(self._heads, (following.number, place, following))
        return message

    def close(self) -> None:
        """See Scanner.close."""
        self._closed = True
        for part in self._parts:
            part.close()

    def _look(self, wait: float) -> None:
        """Ask the dry partitions; the first one for `wait` seconds, another one each time.

        Raises what one of them does: that one, and those behind it, are asked first the next time.
        """
        asked, dry = deque(self._dry), list[int]()
        if wait:
            asked.rotate(-1)
        try:
            while asked:
                message = self._parts[asked[0]].poll(0.0 if self._heads else wait)
                place, wait = asked.popleft(), 0.0
                if message is None:
                    dry.append(place)
                else:
                    heapq.heappush(self._heads, (message.number, place, message))
        finally:
            self._dry = [*asked, *dry]
        self._look_at = time.monotonic() + FOLLOW_SECONDS_EACH


class QueueScanner(CombinedPartitionScanner):
    """All partitions of a queue, merged by id."""

    def __init__(
        self, calls: Calls, queue: str, partitions: int, scope: Scope, view: View | None = None
    ) -> None:  # fmt: skip
        """Errors as PartitionScanner."""
        super().__init__(calls, queue, range(partitions), scope, view)
