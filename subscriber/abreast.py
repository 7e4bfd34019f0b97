"""The pushes of one partition whose keys are worked off side by side (`concurrency` with `order="key"`).

The messages of a key are a strand, and so is each message without one. A push is answered when all of its messages have
ended; if some of them were not handled, after the pushes before it, for the host parks in order. The next pushes begin
meanwhile. What concerns the whole partition waits until nothing is under way: a new turn, and a push that batch
listeners take as a whole. So whatever the host repeats, the inbox knows by then what was handled.

A callback that takes longer than it may goes on, as nothing can stop it. Its message has failed at the limit, and what
waits behind it for its strand is held, so that their pushes can be answered. The strand is its own until it returns,
which nobody hears of any more: what comes again meanwhile is held, too. Its thread has another one in its place.

Everything here happens under one lock, except for the calls of the listeners themselves.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Protocol

import msgspec

from delivery.model import Message
from subscriber.holding import HELD, Holding, Unhandled
from subscriber.inbox import PartitionInbox, Status, Turn
from subscriber.listeners import Abandoned, ListenerFailed, failed_at


class Work(msgspec.Struct):
    """What a push asks for."""

    messages: list[Message]
    position: int
    """What it covers once they have ended; less than all of it when it is damaged behind them."""
    damage: Exception | None = None


class Handling(Protocol):
    """A push, and the service that knows what it says."""

    turn: Turn
    again: bool
    """It repeats parked messages."""

    @property
    def is_whole(self) -> bool:
        """Whether listeners take it as a whole."""

    @property
    def outstay_seconds(self) -> float:
        """When a call that has not returned has failed; 0 for never."""

    def handle(self) -> None:
        """Handle it as a whole, and answer it."""

    def begin(self) -> Work | Status:
        """Begin it in the inbox."""

    def call(self, message: Message) -> None:
        """Call the listeners. Raises ListenerFailed, Abandoned."""

    def note(self, failed: ListenerFailed) -> Unhandled:
        """Tell of a message that was not handled, while the run goes on."""

    def skip(self, status: Status) -> None:
        """Answer that nobody is called."""

    def end_early(self, position: int) -> bool:
        """Answer that it has ended, though others before it have not; False when that must wait."""

    def pass_by(self, position: int) -> None:
        """Note that it has ended, which is answered."""

    def end(self, position: int, unhandled: list[Unhandled] | None) -> None:
        """Answer that it has ended; None where the inbox knows what was not handled."""

    def fail(self, handled: int, why: ListenerFailed | Exception) -> None:
        """Answer that it ended its run."""


class _UnderWay(msgspec.Struct, eq=False):
    push: Handling
    work: Work
    left: int
    """Messages that have not ended."""
    status: Status = Status.OK
    unhandled: list[Unhandled] = []
    """Of a push that repeats parked messages."""
    failed: ListenerFailed | None = None
    """What ends the run: the first of them."""
    is_answered: bool = False
    limit: float = 0.0
    """Seconds that a call may take; 0 for as long as it likes."""
    passed: set[int] = set()
    """Messages that were held while they waited for their strand."""


class _Running(msgspec.Struct):
    """A call that is bounded."""

    one: _UnderWay
    message: Message
    due: float


class Abreast:
    """Takes the pushes of a partition in order of arrival."""

    def __init__(
        self, inbox: PartitionInbox, submit: Callable[[Hashable, Callable[[], None]], None],
        clock: Callable[[], float] = time.monotonic, on_due: Callable[[float], object] = bool,
        on_late: Callable[[bool], object] = bool,
    ) -> None:  # fmt: skip
        """`submit(strand, job)` has the job called after those of its strand, on another thread or later.

        `on_due` hears of a time at which a call may be late: `fail_late` is to be called then. `on_late` hears of a
        call that is late, and (False) that it has returned.
        """
        self._inbox, self._submit, self._clock = inbox, submit, clock
        self._on_due, self._on_late = on_due, on_late
        self._running: dict[int, _Running] = {}
        """Calls that are bounded, by message."""
        self._late: set[Hashable] = set()
        """The strands of calls that took longer, and have not returned."""
        self._lock = threading.Lock()
        self._arrived: deque[Handling] = deque()
        self._under_way: deque[_UnderWay] = deque()
        self._turn: Turn | None = None
        self._over: tuple[Turn, int] | None = None
        """The turn that a failure ended, and the message that failed: nobody is called for what lies behind it."""

    @property
    def _holding(self) -> Holding:
        return self._inbox.holding

    def take(self, push: Handling) -> None:
        """A push arrived."""
        with self._lock:
            self._arrived.append(push)
            self._go_on()

    def due(self) -> float:
        """When the next call is late; infinite for never. Asked by the loop, for which a listener may hold the lock."""
        return min((call.due for call in tuple(self._running.values())), default=math.inf)

    def fail_late(self) -> None:
        """What is late by now has failed. On any thread that may call the application."""
        with self._lock:
            now = self._clock()
            for call in [call for call in self._running.values() if call.due <= now]:
                self._fail_late(call)
            self._go_on()
            for one in list(self._under_way):
                self._answer_early(one)

    def _fail_late(self, call: _Running) -> None:
        one, message = call.one, call.message
        del self._running[message.number]
        self._late.add(_strand(message))
        self._on_late(True)
        late = TimeoutError(f"the listener takes longer than {one.limit:g} s, and still runs")
        self._note(one, failed_at(message, late))
        one.left -= 1
        for other in list(self._under_way)[self._under_way.index(one) :]:
            for behind in other.work.messages:
                if _strand(behind) == _strand(message) and (other is not one or behind.number > message.number):
                    self._pass(other, behind)

    def _pass(self, one: _UnderWay, message: Message) -> None:
        """Hold a message whose strand is not free, if it is to be held."""
        if message.number not in one.passed and not self._is_wanted(one, message):
            one.passed.add(message.number)
            one.left -= 1

    def _go_on(self) -> None:
        """Answer what has ended, begin what may begin."""
        while True:
            if self._under_way and not self._under_way[0].left:
                self._answer(self._under_way.popleft())
            elif self._arrived and self._may_begin(self._arrived[0]):
                self._begin(self._arrived.popleft())
            else:
                return

    def _may_begin(self, push: Handling) -> bool:
        if push.is_whole:
            return not self._under_way and not self._late
        return not self._under_way or push.turn == self._turn

    def _begin(self, push: Handling) -> None:
        self._turn = push.turn
        if push.is_whole:
            push.handle()
            return
        work = push.begin()
        if isinstance(work, Status):
            self._under_way.append(_UnderWay(push, Work([], 0), 0, work))
            return
        one = _UnderWay(push, work, len(work.messages), limit=push.outstay_seconds)
        self._under_way.append(one)
        for message in work.messages:
            if (strand := _strand(message)) in self._late:
                self._hold_behind_late(one, message)
            if message.number not in one.passed:
                self._submit(strand, partial(self._handle, one, message))

    def _hold_behind_late(self, one: _UnderWay, message: Message) -> None:
        if one.push.again:
            one.unhandled.append(Unhandled(message.number, message.key, HELD))
            one.passed.add(message.number)
            one.left -= 1
        else:
            self._pass(one, message)

    def _handle(self, one: _UnderWay, message: Message) -> None:
        """The job of a message."""
        failed: ListenerFailed | None = None
        with self._lock:
            if message.number in one.passed:
                return
            wanted = self._is_wanted(one, message)
            if wanted and one.limit:
                self._running[message.number] = call = _Running(one, message, self._clock() + one.limit)
                self._on_due(call.due)
        if wanted:
            try:
                one.push.call(message)
            except ListenerFailed as error:
                failed = error
            except Abandoned:
                return  # the loop has ended, nobody waits for an answer
            except BaseException as error:  # noqa: BLE001 - what else fails counts as what a listener raises
                failed = failed_at(message, error)
        with self._lock:
            if wanted and one.limit and self._running.pop(message.number, None) is None:
                self._late.discard(_strand(message))  # and what it says now comes too late
                self._on_late(False)
                self._go_on()
                return
            if failed is not None:
                self._note(one, failed)
            elif wanted and one.push.again:
                self._holding.settle(message.number)
            one.left -= 1
            self._go_on()
            self._answer_early(one)

    def _is_wanted(self, one: _UnderWay, message: Message) -> bool:
        """Whether to call for it now. If not, it is held, was handled before, or comes again in another turn."""
        holding = self._holding
        if self._over is not None and one.push.turn == self._over[0] and message.number > self._over[1]:
            return False
        if not one.push.again:
            return next(holding.free([message]), None) is not None
        if not holding.is_unsettled(message.number):
            return False
        if not holding.is_next(message):
            one.unhandled.append(Unhandled(message.number, message.key, HELD))
            return False
        return True

    def _note(self, one: _UnderWay, failed: ListenerFailed) -> None:
        again, turn = one.push.again, one.push.turn
        if again or (isinstance(failed.__cause__, Exception) and not self._holding.is_full):
            self._holding.hold(unhandled := one.push.note(failed))
            if again:
                one.unhandled.append(unhandled)
            return
        if one.failed is None or failed.first < one.failed.first:
            one.failed = failed
        if self._over is None or self._over[0] != turn or failed.first < self._over[1]:
            self._over = turn, failed.first

    def _answer_early(self, one: _UnderWay) -> None:
        """Answer a push before those before it, if it has ended and all of it was handled."""
        if one.left or one.is_answered:
            return
        over = self._over is not None and self._over[0] == one.push.turn
        if not (over or one.push.again or one.failed or one.work.damage):
            one.is_answered = one.push.end_early(one.work.position)

    def _answer(self, one: _UnderWay) -> None:
        push, work, answered = one.push, one.work, one.is_answered
        one.is_answered = True
        why = one.failed or work.damage
        if answered:
            if not self._inbox.is_failed(push.turn):
                push.pass_by(work.position)
        elif one.status is not Status.OK:
            push.skip(one.status)
        elif self._inbox.is_failed(push.turn):
            push.skip(Status.SKIPPED)
        elif why is not None:
            handled = one.failed.handled if one.failed is not None else work.position
            self._inbox.forget(handled)
            push.fail(handled, why)
        elif push.again:
            push.end(work.position, one.unhandled)
        else:
            push.end(work.position, None)


def _strand(message: Message) -> Hashable:
    return message.number if message.key is None else message.key
