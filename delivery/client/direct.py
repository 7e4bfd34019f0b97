"""The publisher behind `Queue.put` and `put_many`: it has no thread, its callers take turns (see `machine`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import monotonic

from delivery.batch import Row
from delivery.client.accumulator import Limits
from delivery.client.inflight import WINDOW_MAX
from delivery.client.machine import Machine, Target, checked_timeout
from delivery.client.outgoing import Plain
from delivery.client.receipts import PublishedMessage, Receipt, receipts
from delivery.client.turns import Turns
from delivery.errors import Closed, Throttled, UnknownOutcome


class DirectPublisher(Machine):
    """Publishes for callers that wait for the outcome at once. Thread-safe."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, Limits(linger=0), WINDOW_MAX // 2, 30.0)
        self._turns = Turns()

    def publish(
        self, rows: Sequence[tuple[Row, int, int | None]], timeout: float, pointer: int = 0
    ) -> list[PublishedMessage]:  # fmt: skip
        """Store rows (row, size, partition), checked before; raises as `Receipt.result`, for the first that failed.

        `pointer`: see Accumulator.place.
        """
        end = monotonic() + checked_timeout(timeout)
        return self._outcome(
            [self._take(row, size, partition, end, pointer) for row, size, partition in rows], timeout, end
        )

    def publish_plain(self, plain: Plain, timeout: float) -> list[PublishedMessage]:
        """`publish` for messages that need no check any more (see Outgoing.plain)."""
        end, taken = monotonic() + checked_timeout(timeout), list[Receipt]()
        while len(taken) < len(plain.bodies):
            taken += self._take_plain(plain, len(taken), end)
        return self._outcome(taken, timeout, end)

    def _outcome(self, taken: Sequence[Receipt], timeout: float, end: float) -> list[PublishedMessage]:
        # A batch shared with a more patient caller is given up later than this one's time.
        if not self._drive(_all_done(taken), end + 1.0):
            raise UnknownOutcome(f"no answer within {timeout:g} s; the message may still be stored")
        return [receipt.result() for receipt in taken]

    def close(self) -> None:
        """Refuse what follows and close the connections. Closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._sender.wake()
        while not self._turns.take(lambda: False, inf):
            pass
        try:
            self._sender.abandon(Closed("the client was closed"))
        finally:
            self._turns.pass_on()  # those who wait have their outcome now
        self._sender.close()

    def _take(self, row: Row, size: int, partition: int | None, end: float, pointer: int) -> Receipt:
        while True:
            with self._lock:
                if self._fits(size):
                    now = monotonic()
                    batch, index = self._accumulator.place(row, size, partition, now, max(0.0, end - now), pointer)
                    self._placed(index, now)
                    return Receipt(batch, index)
            self._wait_for_room(size, end)

    def _take_plain(self, plain: Plain, at: int, end: float) -> Iterator[Receipt]:
        """The receipts of those from `at` on that one batch takes."""
        size = plain.size(at, at + 1)
        while True:
            with self._lock:
                if self._fits(size):
                    now = monotonic()
                    batch, places = self._accumulator.place_plain(plain, at, now, max(0.0, end - now))
                    self._placed(places.start, now)
                    return receipts(batch, places)
            self._wait_for_room(size, end)

    def _fits(self, size: int) -> bool:
        self._check_open()
        return self._accumulator.fits(size)

    def _wait_for_room(self, size: int, end: float) -> None:
        if not self._drive(lambda: self._accumulator.fits(size), end):
            raise Throttled("too much is waiting to be published; nothing of this message was stored")

    def _drive(self, finished: Callable[[], bool], end: float) -> bool:
        """Wait until `finished`, leading where nobody else does; False when the time is up."""
        while not finished():
            if monotonic() >= end:
                return False
            if not self._turns.take(finished, end):
                continue
            try:
                self._lead(finished, end)
            finally:
                self._turns.pass_on()
        return True

    def _lead(self, finished: Callable[[], bool], end: float) -> None:
        while not self._closed:
            self._step()
            if finished() or monotonic() >= end:
                return
            self._turns.tell()
            now, held_until = monotonic(), self._sender.held_until
            self._sender.wait((min(end, held_until) if held_until > now else end) - now)

    def _placed(self, index: int, now: float) -> None:
        """See that whoever leads learns of a new batch: it may wait for a host that is silent. While batches are held
        nobody has to tell: it looks when that is over.
        """
        if index == 0 and self._sender.held_until <= now < self._sender.asleep_until:
            self._sender.wake()


def _all_done(receipts: Sequence[Receipt]) -> Callable[[], bool]:
    """Whether all are done; what was found done is not looked at again."""
    rest = iter(receipts)
    pending = next(rest, None)

    def finished() -> bool:
        nonlocal pending
        while pending is not None and pending.done():
            pending = next(rest, None)
        return pending is None

    return finished
