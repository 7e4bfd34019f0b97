"""The batching publisher: `put` takes a message into a batch, a receipt tells later what became of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from time import monotonic
from typing import Final, Self

from delivery import logs
from delivery.batch import Row
from delivery.client.accumulator import ROW_BYTES, Grant, Limits
from delivery.client.machine import Machine, Target
from delivery.client.outgoing import Bytes, NewMessage, Plain
from delivery.client.receipts import Batch, PublishedMessage, Receipt, receipts
from delivery.errors import Closed, DeadlineExceeded, HootError, Throttled

__all__ = ["PublishedMessage", "Publisher", "Receipt"]

INTERRUPTED_SECONDS: Final = 1.0
"""Who presses Ctrl-C, or is cancelled, does not wait any longer for what was put."""

log = logs.logger(__name__)


class Publisher(Machine):
    """A batching publisher (see `Queue.publisher`). Thread-safe; close it, or use it as a context manager.

    Its thread starts with the first message. What was put and not flushed when the process ends is lost. As a context
    manager it flushes, too, when it is left by an exception; by an interrupt or a cancellation for a second at most.
    """

    def __init__(
        self, target: Target, limits: Limits, *, in_flight: int = 8, timeout: float = 30.0, hop: bool = False
    ) -> None:
        """`hop` leaves all sending to the publisher's thread, for callers that must not wait for a socket."""
        super().__init__(target, limits, in_flight, timeout, granting=True)
        self._body_bytes_max = target.outgoing.body_bytes_max
        grants = self._accumulator.grants
        carries = target.outgoing.carry is not None  # then the way without headers is never taken
        self._take_grant, self._give_back = deque[Grant]().pop if carries else grants.pop, grants.append
        self._hop = hop
        self._turn = threading.Lock()
        """Held by whoever moves the sender on."""
        self._stepping: int | None = None
        """The thread that does, of which the callbacks of receipts are called."""
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
        if key is None and partition is None and headers is None and body.__class__ is bytes:
            # The hot path: taking the grant, which a deque gives to one thread at a time, costs half of what a lock
            # does.
            try:
                grant = self._take_grant()
            except IndexError:
                pass
            else:
                try:
                    left = grant.left - len(body) - ROW_BYTES
                    if left >= 0 and grant.topic == topic:
                        grant.left = left
                        bodies = grant.bodies
                        index = len(bodies)
                        bodies.append(body)
                        if grant.kept is None or self._kept(grant, index):
                            return Receipt(grant.batch, index)
                finally:
                    self._give_back(grant)
        row, size = self._outgoing.row(body, key, topic, headers)
        return self._place(row, size, partition)

    def put_many(self, messages: Iterable[Bytes | NewMessage]) -> list[Receipt]:
        """`put` for each: a body, or a NewMessage. What raises comes before anything of these messages is taken."""
        given = list(messages)
        plain, found = self._outgoing.plain(given), list[Receipt]()
        if plain is not None:
            while len(found) < len(given):
                found += self._place_plain(plain, len(found))
            return found
        rows = deque(map(self._outgoing.row_of, given))
        while rows:
            found += self._place_some(rows)
        return found

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
        self._close(None)

    def _close(self, seconds: float | None) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._accumulator.stop()
        try:
            if self._here:
                self.flush(seconds)
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
            return
        try:
            self._close(None if issubclass(kind, Exception) else INTERRUPTED_SECONDS)
        except HootError as failure:
            log.warning("closing a publisher after %s: %s", kind.__name__, failure.message)

    def _place(self, row: Row, size: int, partition: int | None) -> Receipt:
        with self._lock:
            before = self._admitted(size)
            batch, index = self._accumulator.place(row, size, partition, monotonic(), self._timeout)
            closed = self._accumulator.closings > before
        self._placed(batch, closed=closed, new=index == 0)
        return Receipt(batch, index)

    def _place_some(self, rows: deque[tuple[Row, int, int | None]]) -> list[Receipt]:
        """The receipts of the first rows, which are taken out: up to where a batch is closed, or there is no room."""
        found, new = list[Receipt](), False
        accumulator = self._accumulator
        with self._lock:
            before, now = self._admitted(rows[0][1]), monotonic()
            while True:
                batch, index = accumulator.place(*rows.popleft(), now, self._timeout)
                new = new or index == 0
                found.append(Receipt(batch, index))
                if not rows or accumulator.closings > before or not accumulator.fits(rows[0][1]):
                    break
            closed = accumulator.closings > before
        self._placed(batch, closed=closed, new=new)
        return found

    def _place_plain(self, plain: Plain, at: int) -> Iterator[Receipt]:
        """The receipts of those from `at` on that one batch takes."""
        with self._lock:
            before = self._admitted(plain.size(at, at + 1))
            batch, places = self._accumulator.place_plain(plain, at, monotonic(), self._timeout)
            closed = self._accumulator.closings > before
        self._placed(batch, closed=closed, new=places.start == 0)
        return receipts(batch, places)

    def _kept(self, grant: Grant, index: int) -> bool:
        """Whether a batch has what was appended by a grant that was taken away."""
        with self._lock:
            return grant.kept is None or index < grant.kept

    def _admitted(self, size: int) -> int:
        """Wait for room, with the lock; how many batches were closed before the message comes."""
        give_up = monotonic() + self._timeout
        self._check_open()
        while not self._accumulator.fits(size):
            self._wait_for_room(give_up - monotonic())
        if self._thread is None:
            self._start()
        return self._accumulator.closings

    def _placed(self, batch: Batch, *, closed: bool, new: bool) -> None:
        """See that one that was closed is sent, or this one if it is `new`, and not later than it is due."""
        held_until = self._sender.held_until
        if closed or (new and self._limits.linger == 0 and held_until <= monotonic()):
            self._send_now()
        elif max(batch.due, held_until) < self._sender.asleep_until:
            self._sender.wake()

    def _wait_for_room(self, seconds: float) -> None:
        if threading.get_ident() == self._stepping:
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

    def _step(self) -> None:
        self._stepping = threading.get_ident()
        try:
            super()._step()
        finally:
            self._stepping = None

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="hoot-publisher", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping:
                with self._turn:
                    self._step()
                self._sender.wait(inf)
        except BaseException as error:
            log.error("the publisher's thread failed", exc_info=error)
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
