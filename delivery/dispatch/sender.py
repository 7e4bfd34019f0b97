"""The MessageSender: pushes buffered pieces to the listener and takes its answers (seed 004, section 3.5.3).

It works in runs (see `window`). A run ends with one of the `Ending`s; what follows is the worker's business.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec
import trio

from delivery.dispatch.buffer import Buffer, Piece
from delivery.dispatch.retry import Failed, Failure, checked
from delivery.dispatch.window import Sent, Window
from delivery.errors import HootError, ProtocolError, SubscriberUnreachable

log = logging.getLogger(__name__)

STATUS_OK, STATUS_FAILED, STATUS_SKIPPED, STATUS_STALE, STATUS_UNKNOWN = range(5)
"""The status codes of idl/subscriber.thrift."""


class Ending(enum.Enum):
    """Why a run ended."""

    BROKEN = "the connection broke"
    FAILED = "a message was not handled"
    FRUITLESS = "a push came to nothing, though the connection stands"
    REFUSED = "the listener does not know the subscription or has seen a newer owner"


class Stream(msgspec.Struct, frozen=True):
    """What all pushes of one worker have in common."""

    queue: str
    subscription: str
    partition: int
    epoch: int


class Answer(Protocol):
    """A PushReply of idl/subscriber.thrift."""

    status: int
    position: int
    failures: Sequence[Failure] | None


class Target(Protocol):
    """A connection to a listener that proved to be the right one."""

    @property
    def ready(self) -> bool:
        """Whether it takes a push now."""

    def when_ready(self, tell: Callable[[], None], /) -> None:
        """Call `tell` once when it is ready again, or broken."""

    def push(
        self, stream: Stream, run: int, after: int, data: bytes, on_answer: Callable[[Answer | HootError], None], /
    ) -> None:
        """Send one push, whole; `on_answer` is called once, later, on the trio thread.

        Raises HootError when the connection is broken; then `on_answer` is not called.
        """


class Counters(Protocol):
    """Where deliveries are counted."""

    def pushed(self, queue: str, subscription: str, messages: int, size: int) -> None:
        """A push went out."""

    def acknowledged(self, queue: str, subscription: str, messages: int) -> None:
        """A push was acknowledged."""

    def failed(self, queue: str, subscription: str) -> None:
        """A listener failed."""


class _Run(msgspec.Struct, frozen=True):
    """What a run sends from and to, and who hears of its end."""

    buffer: Buffer
    target: Target
    end: Callable[[Ending], None]


class MessageSender:
    """Sends one partition of one subscription. `on_position` hears of every move of the acknowledged position.

    It has no task: `pump` pushes what can be pushed, whenever a piece came, an answer made room, or the connection
    takes bytes again.
    """

    def __init__(self, stream: Stream, window: Window, counters: Counters, on_position: Callable[[int], None]) -> None:
        self._stream, self._window, self._counters = stream, window, counters
        self._on_position = on_position
        self.failed: Failed | None = None
        """What ended the last run, when that was a failure."""
        self._changed = trio.lowlevel.ParkingLot()
        self._current: _Run | None = None

    def begin(self, buffer: Buffer, target: Target, end: Callable[[Ending], None]) -> None:
        """Send what comes into `buffer` until `stop`, or until the run is over, of which `end` is told once."""
        self._current = _Run(buffer, target, end)

    def stop(self) -> None:
        """Send nothing more of this run."""
        self._current = None

    def pump(self) -> None:
        """Push what is in the buffer, as far as the window and the connection have room."""
        while (run := self._current) is not None and (piece := run.buffer.first) is not None:
            if not run.target.ready:
                run.target.when_ready(self.pump)
                return
            if not self._window.has_room(piece.messages, len(piece.data)):
                return
            self._send(run.buffer.take(), run.target)

    async def drained(self) -> None:
        """Return when nothing is out any more."""
        while not self._window.empty:
            await self._changed.park()

    def _send(self, piece: Piece, target: Target) -> None:
        window = self._window
        sent = window.admit(piece.last_id, piece.messages, len(piece.data))
        if not piece.data:
            self._finish(sent)
            return
        self._counters.pushed(self._stream.queue, self._stream.subscription, piece.messages, len(piece.data))
        try:
            target.push(self._stream, sent.run, sent.after, piece.data, partial(self._answered, sent))
        except HootError as error:
            self._refused(error)

    def _answered(self, sent: Sent, answer: Answer | HootError) -> None:
        if sent.run != self._window.run:
            return
        if isinstance(answer, HootError):
            self._refused(answer)
        elif answer.status == STATUS_OK:
            self._counters.acknowledged(self._stream.queue, self._stream.subscription, sent.messages)
            self._finish(sent)
            self.pump()
        elif answer.status == STATUS_FAILED:
            self._failed(sent, answer)
        else:
            self._finish_run(Ending.FRUITLESS if answer.status == STATUS_SKIPPED else Ending.REFUSED)

    def _refused(self, error: HootError) -> None:
        """A push came to nothing. With the connection still up, the same again at once would only come to the same."""
        if isinstance(error, SubscriberUnreachable):
            self._finish_run(Ending.BROKEN)
            return
        stream = self._stream
        log.warning("%s/%s: subscription %s: a push came to nothing: %s", stream.queue, stream.partition,
                    stream.subscription, error)  # fmt: skip
        self._finish_run(Ending.FRUITLESS)

    def _finish(self, sent: Sent) -> None:
        if self._window.finish(sent):
            self._on_position(self._window.position)
        self._changed.unpark_all()

    def _failed(self, sent: Sent, answer: Answer) -> None:
        stream = self._stream
        self._counters.failed(stream.queue, stream.subscription)
        try:
            if self._window.fail(sent, answer.position):
                self._on_position(self._window.position)
            self.failed = _failed_in(answer, sent)
        except ProtocolError as error:
            log.error("%s/%s: subscription %s: %s", stream.queue, stream.partition, stream.subscription, error)
            self._finish_run(Ending.FRUITLESS)
        else:
            log.warning("%s/%s: subscription %s failed at id %d: %s", stream.queue, stream.partition,
                        stream.subscription, self.failed.id, self.failed.error)  # fmt: skip
            self._finish_run(Ending.FAILED)

    def _finish_run(self, ending: Ending) -> None:
        self._window.rewind()
        ended, self._current = self._current, None
        if ended is not None:
            ended.end(ending)
        self._changed.unpark_all()


def _failed_in(answer: Answer, sent: Sent) -> Failed:
    """What failed, by a reply that says that something did. Raises ProtocolError."""
    if not answer.failures:
        raise ProtocolError(f"a listener failed behind {answer.position} and does not say at what")
    return checked(answer.failures[0], answer.position, sent.last_id)
