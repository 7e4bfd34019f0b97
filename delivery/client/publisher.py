"""Publishers: the batching one with a thread of its own, and the direct one behind `Queue.put`, which has none.

Both are one machine: messages gather in an accumulator, and whoever has the turn moves the sender on. In the batching
publisher that is its thread; but a `put` that closes a batch also tries for the turn, so that under load the batches go
out from the thread that makes them and nobody waits for a change of threads. In the direct publisher the callers
themselves take turns: one sends and receives for all until its own messages are settled, and what the others put in the
meantime leaves together as the next batch. So many threads share batches, and a single one pays no hop.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from random import Random
from time import monotonic
from typing import Self

import msgspec

from delivery.batch import Row
from delivery.client.accumulator import ROW_BYTES, Accumulator, Limits
from delivery.client.hosts import Owners
from delivery.client.inflight import WINDOW_MAX
from delivery.client.outgoing import Bytes, NewMessage, Outgoing
from delivery.client.receipts import PublishedMessage, Receipt
from delivery.client.routing import Router
from delivery.client.sender import Sender
from delivery.errors import Closed, DeadlineExceeded, HootError, InvalidRequest, Throttled, UnknownOutcome

__all__ = ["DirectPublisher", "PublishedMessage", "Publisher", "Receipt", "Target"]

log = logging.getLogger(__name__)

TIMEOUT_SECONDS_MAX = 24 * 3600.0


class Target(msgspec.Struct, frozen=True):
    """Where a publisher publishes to."""

    queue: str
    partitions: int
    outgoing: Outgoing
    owners: Owners


class _Base:
    """What both publishers share. Thread-safe."""

    def __init__(self, target: Target, limits: Limits, in_flight: int, timeout: float) -> None:
        if not 1 <= in_flight <= WINDOW_MAX:
            raise InvalidRequest(f"in_flight must be 1 to {WINDOW_MAX}, not {in_flight}")
        self._timeout = checked_timeout(timeout)
        self._outgoing = target.outgoing
        self._topics = target.outgoing.topics
        self._limits = limits.check()
        self._accumulator = Accumulator(Router(target.queue, target.partitions, Random()), limits)
        self._append = self._accumulator.append
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._turn = threading.Lock()
        self._sender = Sender(target.queue, target.owners, self._accumulator, self._room, in_flight)
        self._closed = False
        self._pid = os.getpid()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the publisher is closed")
        if self._pid != os.getpid():
            raise Closed("the publisher belongs to another process: connect again after a fork")

    def _step(self) -> None:
        """Move the sender on; with the turn. An interrupt leaves it fit to go on."""
        try:
            self._sender.advance()
        except BaseException as error:
            self._sender.reset(f"interrupted by {type(error).__name__}")
            raise


class Publisher(_Base):
    """A batching publisher (see `Queue.publisher`). Thread-safe; close it, or use it as a context manager.

    Its thread starts with the first message. What was put and not flushed when the process ends is lost.
    """

    def __init__(
        self, target: Target, limits: Limits, *, in_flight: int = 8, timeout: float = 30.0, hop: bool = False
    ) -> None:
        """`hop` leaves all sending to the publisher's thread, for callers that must not wait for a socket."""
        super().__init__(target, limits, in_flight, timeout)
        self._body_bytes_max = target.outgoing.body_bytes_max
        self._hop = hop
        self._thread: threading.Thread | None = None
        self._stopping = False

    def put(
        self, body: Bytes, *, key: Bytes | None = None, topic: str = "",
        headers: Mapping[str, bytes] | None = None, partition: int | None = None,
    ) -> Receipt:  # fmt: skip
        """Take one message into a batch; its receipt tells what became of it. Routing is that of `Queue.put`.

        Waits while the buffer is full. Raises InvalidRequest and MessageTooLarge for what is over a limit, Throttled
        when the buffer stays full for the publisher's timeout, Closed.
        """
        if (
            key is None and partition is None and headers is None
            and type(body) is bytes and topic in self._topics and len(body) <= self._body_bytes_max
        ):  # fmt: skip
            row: Row = (body, None, topic, b"")
            size = len(body) + ROW_BYTES
            with self._lock:
                batch = self._append(row, size)
                if batch is not None:
                    return Receipt(batch, len(batch.rows) - 1)
        else:
            row, size = self._outgoing.row(body, key, topic, headers)
        return self._place(row, size, partition)

    def put_many(self, messages: Iterable[Bytes | NewMessage]) -> list[Receipt]:
        """`put` for each: a body, or a NewMessage. What raises comes before anything of these messages is taken."""
        rows = [self._outgoing.row_of(message) for message in messages]
        return [self._place(row, size, partition) for row, size, partition in rows]

    def flush(self, timeout: float | None = None) -> None:
        """Send what has gathered and wait until the outcome of everything put so far is known.

        Raises the first failure since the last flush (receipts tell each message's), and DeadlineExceeded when
        `timeout` seconds have passed; without it the publisher's own timeout ends the wait.
        """
        with self._lock:
            self._accumulator.hurry(monotonic())
            pending = list(self._accumulator.unsettled)
        self._sender.wake()
        end = None if timeout is None else monotonic() + timeout
        for batch in pending:
            if not batch.wait(None if end is None else max(0.0, end - monotonic())):
                raise DeadlineExceeded(f"not everything was answered within {timeout:g} s; it is still on its way")
        failure, self._sender.failure = self._sender.failure, None
        if failure is not None:
            raise failure

    def has_room(self) -> bool:
        """Whether a `put` of a message of the largest size would not wait now."""
        return self._accumulator.fits(self._limits.batch_bytes + self._body_bytes_max)

    def close(self) -> None:
        """Flush, raising as `flush` does, then end the thread and the connections. Closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._accumulator.stop()
        try:
            if self._pid == os.getpid():
                self.flush()
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except HootError as failure:
            log.warning("closing a publisher after %s: %s", kind.__name__, failure.message)

    def _place(self, row: Row, size: int, partition: int | None) -> Receipt:
        give_up = monotonic() + self._timeout
        with self._room:
            self._check_open()
            while not self._accumulator.fits(size):
                self._wait_for_room(give_up - monotonic())
            before = self._accumulator.closings
            batch = self._accumulator.place(row, size, partition, monotonic(), self._timeout)
            index = len(batch.rows) - 1
            closed = self._accumulator.closings > before
            if self._thread is None:
                self._start()
        if closed or (index == 0 and self._limits.linger == 0):
            self._send_now()
        elif batch.due < self._sender.asleep_until:
            self._sender.wake()
        return Receipt(batch, index)

    def _wait_for_room(self, seconds: float) -> None:
        if threading.current_thread() is self._thread:
            raise Throttled("the buffer is full, and a receipt's callback cannot wait for room")
        self._accumulator.hurry(monotonic())
        self._sender.wake()
        if not self._room.wait(max(0.0, seconds)) and seconds <= 0:
            raise Throttled(f"the publisher's buffer of {self._limits.buffer_bytes} bytes stayed full")
        self._check_open()

    def _send_now(self) -> None:
        """Send from this thread if nobody else is at it; else see that the others notice."""
        if not self._hop and self._turn.acquire(blocking=False):
            try:
                if not self._stopping:
                    self._step()
            finally:
                self._turn.release()
            if self._sender.asleep_until < inf:
                return  # the thread naps at most; it sleeps without an end only while there is nothing to do
        if self._sender.asleep_until:
            self._sender.wake()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="hoot-publisher", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping:
                with self._turn:
                    self._step()
                self._sender.wait(inf)
        except Exception as error:
            log.exception("the publisher's thread failed")
            with self._turn:
                with self._lock:
                    self._closed = True
                    self._accumulator.stop()
                self._sender.abandon(HootError(f"the publisher failed: {type(error).__name__}: {error}"))

    def _end(self) -> None:
        self._stopping = True
        self._sender.wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._turn:
            self._sender.abandon(Closed("the publisher was closed"))
            self._sender.close()


class DirectPublisher(_Base):
    """Publishes for callers that wait for the outcome at once. No thread: the callers take turns. Thread-safe."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, Limits(linger=0), WINDOW_MAX // 2, 30.0)

    def publish(
        self, rows: Sequence[tuple[Row, int, int | None]], timeout: float
    ) -> list[PublishedMessage]:  # fmt: skip
        """Store rows (row, size, partition), checked before; raises as `Receipt.result`, for the first that failed."""
        end = monotonic() + checked_timeout(timeout)
        receipts = []
        for row, size, partition in rows:
            receipts.append(self._take(row, size, partition, end))
        last = iter(receipts)
        pending = next(last, None)

        def finished() -> bool:
            nonlocal pending
            while pending is not None and pending.done():
                pending = next(last, None)
            return pending is None

        # A batch shared with a more patient caller is given up later than this one's time.
        if not self._drive(finished, end + 1.0):
            raise UnknownOutcome(f"no answer within {timeout:g} s; the message may still be stored")
        return [receipt.result() for receipt in receipts]

    def close(self) -> None:
        """Refuse what follows and close the connections. Closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._sender.wake()
        with self._turn:
            self._sender.abandon(Closed("the client was closed"))
            self._sender.close()

    def _take(self, row: Row, size: int, partition: int | None, end: float) -> Receipt:
        while True:
            with self._lock:
                self._check_open()
                if self._accumulator.fits(size):
                    now = monotonic()
                    batch = self._accumulator.place(row, size, partition, now, max(0.0, end - now))
                    return Receipt(batch, len(batch.rows) - 1)
            if not self._drive(lambda: self._accumulator.fits(size), end):
                raise Throttled("too much is waiting to be published; nothing of this message was stored")

    def _drive(self, finished: Callable[[], bool], end: float) -> bool:
        """Take turns until `finished`; False when the time is up."""
        while not finished():
            if not self._turn.acquire(timeout=max(0.0, end - monotonic())):
                return finished()
            try:
                while not self._closed:
                    self._step()
                    if finished():
                        return True
                    if monotonic() >= end:
                        return False
                    self._sender.wait(end - monotonic())
            finally:
                self._turn.release()
        return True


def checked_timeout(seconds: float) -> float:
    """`seconds` if a call may take so long."""
    if not 0 < seconds <= TIMEOUT_SECONDS_MAX:
        raise InvalidRequest(f"a timeout is more than 0 and at most {TIMEOUT_SECONDS_MAX:.0f} seconds, not {seconds}")
    return seconds
