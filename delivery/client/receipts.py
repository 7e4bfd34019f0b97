"""What a publisher hands back: one Receipt per message, all of a batch sharing the batch's one outcome.

A future per message would cost more than the message; a receipt is two references, and what can be waited for or called
back is kept by the batch, made only when somebody asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Final

import msgspec

from delivery import logs
from delivery.batch import Rows
from delivery.errors import DeadlineExceeded, HootError
from delivery.ids import MessageId
from delivery.model import Durability

log = logs.logger(__name__)

# Taken for a moment when a batch is settled and when somebody begins to wait; one for all batches is cheap enough.
_settling = threading.Lock()


class PublishedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that is stored: its id, its partition, and what `stored` means here (fsync, os or memory)."""

    id: MessageId
    partition: int
    durability: Durability


_NO_ROWS: Final = Rows()


class Batch:
    """Messages of one partition on their way, and later what became of them; `rows` are let go when it is settled.

    Who keeps receipts keeps one object of these for each batch, and no other that the garbage collector would walk.
    """

    __slots__ = ("_callbacks", "_event", "base_id", "begun", "count", "deadline", "due", "durability", "error",
                 "partition", "pointer", "rows", "settled", "size")  # fmt: skip

    def __init__(self, partition: int, due: float, deadline: float, begun: float = 0.0, pointer: int = 0) -> None:
        self.partition, self.pointer = partition, pointer
        self.rows = Rows()
        self.size = 0
        """Bytes that count against the publisher's buffer, a grant's included."""
        self.due = due
        """When it may be sent although it is not full."""
        self.deadline = deadline
        """When it is given up."""
        self.begun = begun
        """When its first message was put."""
        self.count = 0
        self.base_id = 0
        self.durability: Durability = "fsync"
        self.error: HootError | None = None
        self.settled = False
        self._event: threading.Event | None = None
        self._callbacks: list[tuple[Callable[[Receipt], object], Receipt]] | None = None

    def stored(self, base_id: int, durability: Durability) -> None:
        """All its messages are stored, with ids from `base_id`."""
        self.base_id, self.durability = base_id, durability
        self._settle()

    def failed(self, error: HootError) -> None:
        """None of its messages is stored, or that is unknown (UnknownOutcome)."""
        self.error = error
        self._settle()

    def wait(self, timeout: float | None) -> bool:
        """Whether it was settled within `timeout` seconds (None: without a limit of its own)."""
        with _settling:
            if self.settled:
                return True
            event = self._event = self._event or threading.Event()
        return event.wait(timeout)

    def call_back(self, callback: Callable[[Receipt], object], receipt: Receipt) -> bool:
        """Keep a callback for when it is settled; False when it is already."""
        with _settling:
            if self.settled:
                return False
            self._callbacks = self._callbacks or []
            self._callbacks.append((callback, receipt))
            return True

    def _settle(self) -> None:
        assert not self.settled, "a batch has one outcome"
        with _settling:
            self.count = len(self.rows)
            self.rows = _NO_ROWS
            self.settled = True
            callbacks, self._callbacks = self._callbacks, None
            event, self._event = self._event, None
        if event is not None:
            event.set()
        for callback, receipt in callbacks or ():
            _call(callback, receipt)


class Receipt(msgspec.Struct, gc=False, eq=False):
    """The promise of one message's outcome: stored (`result` gives ids), refused, or unknown. Thread-safe."""

    _batch: Batch
    _index: int

    @property
    def batch(self) -> Batch:
        """What it shares its outcome with; for this package."""
        return self._batch

    def done(self) -> bool:
        """Whether the outcome is known; does not wait."""
        return self._batch.settled

    def result(self, timeout: float | None = None) -> PublishedMessage:
        """Wait for the outcome, at most `timeout` seconds; without one, the publisher's own timeout ends the wait.

        Raises what became of the message: UnknownOutcome when it may or may not be stored, any other error when nothing
        was stored; DeadlineExceeded when `timeout` passed and the message is still on its way.
        """
        batch = self._batch
        if not batch.settled and not batch.wait(timeout):
            raise DeadlineExceeded(f"no answer within {timeout:g} s; the message is still on its way")
        if batch.error is not None:
            raise batch.error
        return PublishedMessage(MessageId(batch.base_id + self._index), batch.partition, batch.durability)

    @property
    def id(self) -> MessageId:
        """The id that the host gave; waits and raises as `result` does."""
        return self.result().id

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call `callback(receipt)` once the outcome is known: at once if it is, else on the thread that learns it.

        It must return soon; what it raises is logged.
        """
        if not self._batch.call_back(callback, self):
            _call(callback, self)


def receipts(batch: Batch, places: range) -> Iterator[Receipt]:
    """Those of the rows at these places."""
    return map(Receipt, repeat(batch), places)


def _call(callback: Callable[[Receipt], object], receipt: Receipt) -> None:
    try:
        callback(receipt)
    except (Exception, SystemExit):  # which would end the publisher's thread, and nothing else
        log.exception("a callback of a receipt raised")
