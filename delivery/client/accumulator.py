"""The batching policy of a publisher: which batch a message joins, when a batch is closed, and how much may be waiting.

Not thread-safe, the grant apart: its owner holds a lock and gives the time. A batch is closed when the next message
would not fit, or when it is taken to be sent. It may be taken once it has waited for `linger` seconds; while its
partition cannot send, it stays open and grows instead, so that batches become large exactly when the host is busy.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from delivery.batch import BATCH_BYTES_MAX, Row
from delivery.client.receipts import Batch
from delivery.client.routing import Router
from delivery.errors import InvalidRequest

if TYPE_CHECKING:
    from delivery.client.outgoing import Plain

GRANT_SECONDS = 1.0
"""Who had a grant for so long, though a microsecond is enough, was probably interrupted (Ctrl-C) and will not give it
back."""
ROW_BYTES = 32
"""What a message takes beyond its own bytes: the columns of its batch, and its place in a list here."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher may hold: see `Queue.publisher`."""

    linger: float = 0.002
    batch_bytes: int = 512 * 1024
    batch_messages: int = 8192
    buffer_bytes: int = 64 * 1024 * 1024

    def check(self) -> Limits:
        """Itself. Raises InvalidRequest naming every field that is out of bounds."""
        wrong = [
            f"{name} must be {low} to {high}, not {value}"
            for name, value, low, high in (
                ("linger", self.linger, 0, 60),
                ("batch_bytes", self.batch_bytes, 1, BATCH_BYTES_MAX // 3),
                ("batch_messages", self.batch_messages, 1, 16384),
                ("buffer_bytes", self.buffer_bytes, 1, 1 << 40),
            )
            if not low <= value <= high
        ]
        if wrong:
            raise InvalidRequest("; ".join(wrong))
        return self


class Grant:
    """Room in an open batch for plain messages of one topic, all checked beforehand: to be added without the lock.

    Whoever has it appends to `bodies`, takes what the messages count for off `left`, and gives it back at once. What
    was appended counts while `kept` is None afterwards; else only what `kept` says, for the grant was taken away.
    """

    __slots__ = ("batch", "bodies", "kept", "left", "topic")

    def __init__(self, batch: Batch, topic: str, left: int) -> None:
        self.batch, self.bodies = batch, batch.rows.bodies
        self.topic, self.left = topic, left
        self.kept: int | None = None
        """How many of `bodies` the batch has, when it was taken away; to be read with the owner's lock."""

    def take_away(self) -> None:
        """From who seems to have been interrupted, and may yet go on: the batch goes on with a copy.

        `kept` is set before the copy is made, so that who appends too late cannot miss that it was.
        """
        self.kept = 0
        self.batch.rows.bodies = list(self.bodies)
        self.kept = len(self.batch.rows.bodies)


class Room(NamedTuple):
    """What guards an accumulator, held for moments only."""

    lock: threading.Lock
    freed: threading.Condition
    """Of that lock; notified when a batch leaves the accumulator for good. To enter it takes longer than the lock."""

    @classmethod
    def new(cls) -> Room:
        """One of its own."""
        lock = threading.Lock()
        return cls(lock, threading.Condition(lock))


class Accumulator:
    """Open and closed batches per partition, and the bytes that may still be taken in."""

    __slots__ = ("_closed", "_granted", "_limits", "_open", "_room", "_router", "_row_bytes_max", "_stopped",
                 "closings", "grants", "unsettled")  # fmt: skip

    def __init__(self, router: Router, limits: Limits, row_bytes_max: int) -> None:
        """`row_bytes_max` is what the largest message counts for that may be added by a grant."""
        self._router, self._limits, self._row_bytes_max = router, limits, row_bytes_max
        self._open: dict[int, Batch] = {}
        """By partition, the one opened first in front."""
        self._closed: dict[int, deque[Batch]] = {}
        self.grants: deque[Grant] = deque()
        """The grant for messages without a key, unless somebody has it or there is none. Any thread may take it."""
        self._granted: Grant | None = None
        self._room = limits.buffer_bytes
        """What may still be taken in, beside the grant; what is settled gives its bytes back."""
        self.unsettled: dict[Batch, None] = {}
        """Every batch whose outcome is not known, in the order of opening."""
        self._stopped = False
        self.closings = 0
        """How many batches were closed so far."""

    @property
    def room(self) -> int:
        """Bytes that may still be taken in."""
        return self._room + (0 if self._granted is None else self._granted.left)

    def fits(self, size: int) -> bool:
        """Whether there is room for `size` more bytes. A single message always fits into an empty buffer."""
        return size <= self._room or size <= self.room or self.room == self._limits.buffer_bytes

    def place(
        self, row: Row, size: int, partition: int | None, now: float, timeout: float, pointer: int = 0
    ) -> tuple[Batch, int]:  # fmt: skip
        """The batch that the message has joined and its place there; check `fits` first.

        Others may have joined behind it when this returns.

        `timeout` seconds from now the batch is given up; a batch with several messages waits for the most patient.
        `pointer` is that of the message's transaction: those of another one, or of none, are in other batches, for a
        batch is refused as a whole.
        """
        batch = self._joining(row[1], partition, size, now, now + timeout, pointer)
        index = len(batch.rows)
        batch.rows.append(row)
        self._add(batch, size)
        return batch, index

    def place_plain(
        self, plain: Plain, at: int, now: float, timeout: float, pointer: int = 0
    ) -> tuple[Batch, range]:  # fmt: skip
        """The batch that one or more messages from the place `at` have joined, and their places there.

        For the rest see `place`; check that the first of them fits before.
        """
        batch = self._joining(None, None, plain.size(at, at + 1), now, now + timeout, pointer)
        limits = self._limits
        room = min(limits.batch_bytes - batch.size, self._room)
        end = max(at + 1, min(plain.fitting(at, room), at + limits.batch_messages - len(batch.rows)))
        first = len(batch.rows)
        batch.rows.extend("", plain.bodies[at:end])
        self._add(batch, plain.size(at, end))
        return batch, range(first, first + end - at)

    def take(self, partition: int, now: float, *, full: bool = False) -> Batch | None:
        """The next batch of a partition that may be sent now, or if it is full; it takes no more messages."""
        waiting = self._closed.get(partition)
        if not waiting:
            batch = self._open.get(partition)
            if batch is None or full or batch.due > now:
                return None
            self._close(batch)
            waiting = self._closed[partition]
        batch = waiting.popleft()
        if not waiting:
            del self._closed[partition]
        return batch

    def ready(self, now: float, *, full: bool = False) -> list[int]:
        """The partitions that have a batch to send now, or a full one."""
        due = () if full else self._due(now)
        return [*self._closed, *(number for number in due if number not in self._closed)]

    def next_due(self, now: float) -> float | None:
        """When the next open batch becomes due; None when no later one is waiting."""
        return next((batch.due for batch in self._open.values() if batch.due > now), None)

    def expired(self, now: float) -> list[Batch]:
        """Take out the batches whose deadline has passed; their messages were never sent."""
        found = [batch for batch in self._open.values() if batch.deadline <= now]
        for batch in found:
            self._close(batch)
        late = [b for waiting in self._closed.values() for b in waiting if b.deadline <= now]
        for batch in late:
            waiting = self._closed[batch.partition]
            waiting.remove(batch)
            if not waiting:
                del self._closed[batch.partition]
        return late

    def hurry(self, now: float) -> None:
        """Make every open batch due."""
        for batch in self._open.values():
            batch.due = min(batch.due, now)

    def settled(self, batch: Batch) -> None:
        """The outcome of a batch is known: its bytes are free again."""
        self._room += batch.size
        del self.unsettled[batch]

    def stop(self) -> None:
        """Grant nothing any more."""
        self._regain()
        self._stopped = True

    def take_all(self) -> list[Batch]:
        """Take out every batch that was not taken yet."""
        for batch in list(self._open.values()):
            self._close(batch)
        held = [batch for waiting in self._closed.values() for batch in waiting]
        self._closed.clear()
        return held

    def _joining(
        self, key: bytes | None, partition: int | None, size: int, now: float, deadline: float, pointer: int
    ) -> Batch:  # fmt: skip
        """The open batch for a message of that size; without the grant."""
        number = self._router.route(key, partition)
        if self._granted is not None:
            self._regain()
        batch = self._fitting(number, size, pointer)
        if batch is None and key is None and partition is None:
            number = self._router.sticky  # closing the full one has changed it
            batch = self._fitting(number, size, pointer)
        if batch is None:
            batch = self._open[number] = Batch(number, now + self._limits.linger, deadline, now, pointer)
            self.unsettled[batch] = None
        elif deadline > batch.deadline:
            batch.deadline = deadline
        return batch

    def _add(self, batch: Batch, size: int) -> None:
        batch.size += size
        self._room -= size
        if batch.rows.plain is not None and batch.partition == self._router.sticky:
            self._grant(batch, batch.rows.plain)

    def _fitting(self, number: int, size: int, pointer: int) -> Batch | None:
        """The open batch of a partition if the message fits; one that is too full for it, or another's, is closed."""
        batch = self._open.get(number)
        limits = self._limits
        if batch is None or (
            batch.size + size <= limits.batch_bytes
            and len(batch.rows.bodies) < limits.batch_messages
            and batch.pointer == pointer
        ):
            return batch
        self._close(batch)
        return None

    def _grant(self, batch: Batch, topic: str) -> None:
        """Count bytes as taken into the batch, so that the messages that fit into them need no other check.

        The most that its limits and the buffer leave. No message counts for less than ROW_BYTES, so that they cannot
        be too many; none that is too large fits.
        """
        limits = self._limits
        messages = limits.batch_messages - len(batch.rows)
        size = min(limits.batch_bytes - batch.size, messages * ROW_BYTES, self._room, self._row_bytes_max)
        if size > 0 and not self._stopped:
            batch.size += size
            self._room -= size
            self._granted = Grant(batch, topic, size)
            self.grants.append(self._granted)

    def _regain(self) -> None:
        """What is left of the grant is free again."""
        granted = self._granted
        if granted is None:
            return
        if not self._given_back(granted):
            granted.take_away()
        self._granted = None
        granted.batch.size -= granted.left
        self._room += granted.left

    def _given_back(self, granted: Grant) -> bool:
        """Take the grant when it is there, as it is but for the moments in which another thread has it."""
        end = monotonic() + GRANT_SECONDS
        while monotonic() < end:
            try:
                if self.grants.pop() is granted:
                    return True
            except IndexError:
                sleep(0)  # who has it needs the interpreter to give it back
        return False

    def _due(self, now: float) -> Iterator[int]:
        for number, batch in self._open.items():
            if batch.due > now:
                return
            yield number

    def _close(self, batch: Batch) -> None:
        self._regain()
        number = batch.partition
        self.closings += 1
        del self._open[number]
        self._closed.setdefault(number, deque()).append(batch)
        if number == self._router.sticky:
            self._router.change()
