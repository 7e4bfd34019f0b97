"""The MessageSender: pushes buffered pieces to the listener and takes its answers (seed 004, section 3.5.3).

It works in runs (see `window`). A run ends with one of the `Ending`s; what follows is the worker's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import trio

from delivery import logs
from delivery.dispatch.bell import Bell
from delivery.dispatch.buffer import Buffer, Piece
from delivery.dispatch.ending import Ending
from delivery.dispatch.guarding import guarded
from delivery.dispatch.outlet import Outlet
from delivery.dispatch.parking import SendAgain
from delivery.dispatch.pulse import Counters
from delivery.dispatch.retrier import Retrier
from delivery.dispatch.retry import Broken, Failed, Failure, Kind, checked, failed_in
from delivery.dispatch.target import (
    STATUS_FAILED,
    STATUS_OK,
    STATUS_SKIPPED,
    STATUS_STALE,
    Answer,
    More,
    Stream,
    Target,
)  # fmt: skip
from delivery.dispatch.window import Sent, Window
from delivery.errors import HootError, ProtocolError, SubscriberUnreachable
from delivery.ids import MessageId

log = logs.logger(__name__)


class _Run(msgspec.Struct, frozen=True):
    """What a run sends from and to, and who hears of its end."""

    buffer: Buffer
    target: Target
    end: Callable[[Ending], None]


class MessageSender:
    """Sends one partition of one subscription. `on_position` hears of every move of the acknowledged position.

    It has no task: `pump` pushes what can be pushed, whenever something has changed.
    """

    def __init__(
        self, stream: Stream, window: Window, counters: Counters, on_position: Callable[[int], None], retrier: Retrier,
        outlet: Outlet,
    ) -> None:  # fmt: skip
        self._stream, self._window, self._counters, self._outlet = stream, window, counters, outlet
        self._on_position, self._retrier = on_position, retrier
        self._first: More | None = None
        """For the first push of a run."""
        self.failed: Failed | None = None
        """What ended the last run, when that was a failure."""
        self.broken: Broken | None = None
        """What was out when the connection of the last run broke."""
        self._changed = Bell()
        self._retries = self._quiet = self._recalling = False
        self._current: _Run | None = None

    @property
    def is_held_up(self) -> bool:
        """Whether there is something to push, and window or connection do not take it."""
        run = self._current
        return run is not None and run.buffer.messages > 0 and not (run.target.ready and self._window.has_room(1, 1))

    @property
    def is_limited(self) -> bool:
        """Whether there is something to push, and the subscription's own limits, or a pause, do not let it out."""
        run = self._current
        return run is not None and run.buffer.messages > 0 and self._outlet.gate.holds(self.pump)

    def begin(self, buffer: Buffer, target: Target, end: Callable[[Ending], None], *, retries: bool) -> None:
        """Send what comes into `buffer` until `stop`, or until the run is over, of which `end` is told once.

        `retries` says whether what is parked is brought again in this run.
        """
        self._current, self._retries = _Run(buffer, target, end), retries
        self.broken, self._quiet, self._recalling = None, False, False
        self._retrier.parking.rewound()
        self._first = More()

    def stop(self) -> None:
        """Send nothing more of this run."""
        self._current = None
        if self._recalling:
            self._window.rewind()  # the next run is begun already, for the listener that was recalled

    @guarded
    def pump(self) -> None:
        """Push what is in the buffer, as far as window, gate and connection let it."""
        run = self._current
        if run is None or run.buffer.is_empty:
            return
        largest = self._outlet.fit()
        while (run := self._current) is not None and (piece := run.buffer.first(*largest)) is not None:
            if self._quiet or self._recalling:
                return
            if not run.target.ready:
                run.target.when_ready(self.pump)
                return
            if piece.data and not (
                self._window.has_room(piece.messages, len(piece.data)) and self._outlet.gate.is_open(self.pump)
            ):
                return
            self._send(run.buffer.take(), run.target)

    def recall(self) -> None:
        """End the run, as soon as what the listener has begun is answered; it gives back what it has not begun.

        An empty push of the next run does that: what waits behind the push under way is stale then.
        """
        run, window = self._current, self._window
        if run is None or self._recalling:
            return
        self._recalling = True
        try:
            if not self._end_if_recalled():
                parked = More(parked=tuple(self._retrier.parking.messages()))
                run.target.push(self._stream, window.run + 1, window.heard, b"", lambda _: None, parked)
        except HootError as error:
            self._refused(error)

    def give_up(self) -> None:
        """End the run at once, whatever the listener has begun."""
        self._finish_run(Ending.RECALLED)

    def unforeseen(self) -> None:
        """See Ends: the run is over, and the next one begins at the acknowledged position."""
        self._finish_run(Ending.FRUITLESS)

    async def drained(self) -> None:
        """Return when nothing is out any more."""
        while not self._window.empty or self._retrier.parking.out:
            await self._changed.wait()

    async def quiet(self) -> None:
        """Push nothing more and return when nothing is out; the answer of the retry push that follows ends that."""
        self._quiet = True
        await self.drained()

    async def ready(self) -> None:
        """Return when connection and gate let a push out, or the run is over."""
        run = self._current
        while run is not None:
            ready = trio.Event()
            if not run.target.ready:
                run.target.when_ready(ready.set)
            elif self._outlet.gate.is_open(ready.set):
                return
            try:
                await ready.wait()
            finally:
                self._outlet.gate.forget(ready.set)

    def send_again(self, step: SendAgain, data: bytes) -> None:
        """Send a retry push; it is outside of the window."""
        run, window = self._current, self._window
        if run is None:
            return
        first = self._more_of_first()
        more = More(None if first is None else first.parked, again=True, settled=step.settled)
        self._counters.pushed(self._stream.queue, self._stream.subscription, len(step.ids), len(data))
        self._outlet.gate.sent(len(step.ids), len(data))
        self._retrier.parking.sent(step)
        try:
            on_answer = partial(self._answered_again, window.run, step)
            run.target.push(self._stream, window.run, window.told, data, on_answer, more)
        except HootError as error:
            self._refused(error)

    def _more_of_first(self) -> More | None:
        """What is to be said with the first push of the run, once."""
        first, self._first = self._first, None
        parking = self._retrier.parking
        return More(parked=tuple(parking.messages())) if first is not None and parking else None

    def _send(self, piece: Piece, target: Target) -> None:
        window = self._window
        if not piece.data:
            if window.skip(piece.last_id):
                self._on_position(window.position)
            return
        sent = window.admit(piece.last_id, piece.messages, len(piece.data))
        self._outlet.sent(sent)
        try:
            more = None if self._first is None else self._more_of_first()
            target.push(self._stream, sent.run, sent.told, piece.data, partial(self._answered, sent), more)
        except HootError as error:
            window.withdraw(sent)
            self._refused(error)
        self._counters.pushed(self._stream.queue, self._stream.subscription, piece.messages, len(piece.data))

    @guarded
    def _answered(self, sent: Sent, answer: Answer | HootError) -> None:
        if sent.run != self._window.run:
            return
        if isinstance(answer, HootError):
            self._refused(answer)
        elif answer.status == STATUS_OK:
            if answer.failures and not self._park(sent, answer.failures):
                return
            self._counters.acknowledged(self._stream.queue, self._stream.subscription, sent.messages)
            self._outlet.answered(sent, answer.abreast)
            if self._window.finish(sent):
                self._on_position(self._window.position)
            self._changed.ring()
            if answer.failures and not self._retries:
                self._finish_run(Ending.PARKED)  # the listener knows another order than the host does
            if not self._end_if_recalled():
                self.pump()
        elif answer.status == STATUS_FAILED:
            self._failed(sent, answer)
        else:
            self._finish_run(self._ending_by(answer.status))

    def _ending_by(self, status: int) -> Ending:
        """What an answer means that comes without anything having been called."""
        if status == STATUS_STALE and self._recalling:
            return Ending.RECALLED
        return Ending.FRUITLESS if status in (STATUS_FAILED, STATUS_SKIPPED) else Ending.REFUSED

    def _end_if_recalled(self) -> bool:
        """End a run that was recalled, if nothing is out any more."""
        if not self._recalling or not self._window.empty or self._retrier.parking.out:
            return False
        self._finish_run(Ending.RECALLED)
        return True

    @guarded
    def _answered_again(self, run: int, step: SendAgain, answer: Answer | HootError) -> None:
        if run != self._window.run:
            return
        if isinstance(answer, HootError):
            self._refused(answer)
            return
        failures = [one for one in answer.failures or () if one.id in step.ids]
        if answer.status != STATUS_OK and not failures:
            self._finish_run(self._ending_by(answer.status))
            return
        try:
            failed = [checked(one, 0, max(step.ids)) for one in failures]
        except ProtocolError as error:
            self._refused(error)
            return
        self._retrier.answered(step.slot, failed)
        self._changed.ring()
        if not self._end_if_recalled() and step.alone:
            self._quiet = False
            self.pump()

    def _park(self, sent: Sent, failures: Sequence[Failure]) -> bool:
        """Park what of a push was not handled; False when that ended the run."""
        stream = self._stream
        try:
            if not self._window.is_first(sent):
                raise ProtocolError("a listener answers pushes out of order")
            found = sorted((checked(one, sent.told, sent.end) for one in failures), key=lambda failed: failed.id)
        except ProtocolError as error:
            self._refused(error)
            return False
        for failed in found:
            if failed.kind is not Kind.HELD:
                self._counters.failed(stream.queue, stream.subscription)
                log.info("%s failed at id %s, which is parked: %s", stream, MessageId(failed.id), failed.error)
            if not self._retrier.park(failed):
                self._retrier.changed()
                if self._window.fail(sent, failed.id - 1):
                    self._on_position(self._window.position)
                self._finish_run(Ending.PARKED)
                return False
        self._retrier.changed()
        return True

    def _refused(self, error: HootError) -> None:
        """A push came to nothing. With the connection still up, the same again at once would only come to the same."""
        if isinstance(error, SubscriberUnreachable):
            window, others = self._window, self._retrier.parking.out
            self._retrier.broken()
            if not window.empty:
                self.broken = Broken(window.position, window.last_id, 0 if others else window.alone)
            self._finish_run(Ending.BROKEN)
            return
        log.warning("%s: a push came to nothing: %s", self._stream, error)
        self._finish_run(Ending.FRUITLESS)

    def _failed(self, sent: Sent, answer: Answer) -> None:
        stream = self._stream
        self._counters.failed(stream.queue, stream.subscription)
        before = [] if answer.failures is None else answer.failures[:-1]
        if before and not self._park(sent, before):
            return
        try:
            if self._window.fail(sent, answer.position):
                self._on_position(self._window.position)
            self.failed = failed_in(answer.failures, answer.position, sent.end)
        except ProtocolError as error:
            log.error("%s: %s", stream, error)
            self._finish_run(Ending.FRUITLESS)
        else:
            log.warning("%s failed at id %s: %s", stream, MessageId(self.failed.id), self.failed.error)
            self._finish_run(Ending.FAILED)

    def _finish_run(self, ending: Ending) -> None:
        self._window.rewind()
        ended, self._current = self._current, None
        if ended is not None:
            ended.end(ending)
        self._changed.ring()
