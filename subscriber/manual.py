"""Acknowledging by hand: a message counts as handled when the application says so, not when its listener returns.

A listener gets messages with `ack`, which may be called later, from any thread or task. The answer to a push is kept
back until every message of it that a listener got was acknowledged; then it leaves, whatever was pushed before. What a
host repeats meanwhile calls nobody again, and its answer waits for the same messages.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable

import msgspec

from delivery.model import Message
from subscriber.inbox import Status
from subscriber.listeners import Registered
from subscriber.pushes import Push, Reply, batches, last_id_of

Give = Callable[[bool], object]
"""Gives an answer: True when all that it waited for was acknowledged, False when that will not be."""


class _Kept:
    """An answer, and how many messages it waits for."""

    __slots__ = ("give", "given", "in_order", "missing")

    def __init__(self, give: Give, in_order: bool) -> None:
        self.give, self.in_order = give, in_order
        self.missing, self.given = 0, False


class ManualMessage(Message, frozen=True, gc=False):
    """A message of a subscription that is acknowledged by hand."""

    unacknowledged: Unacknowledged | None = None

    def ack(self) -> None:
        """It is handled. From any thread or task; twice is fine, and so is too late: then it comes again."""
        if self.unacknowledged is not None:
            self.unacknowledged.forget([self.number])


class Unacknowledged:
    """What is not acknowledged of one partition of an attached subscription. Thread-safe.

    Acknowledging a message counts for each time that it was delivered.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # held while answers are given, so that they leave in order
        self._open: dict[int, list[_Kept]] = {}
        """The answers that wait for a message, by its id."""
        self._fresh: list[int] = []
        """Delivered since the last answer."""
        self._answers: deque[_Kept] = deque()
        """In the order of their pushes, with those behind one that is not given."""
        self._over = False

    def deliver(self, message: Message) -> ManualMessage:
        """The message as a listener gets it, which has to be acknowledged from now on."""
        with self._lock:
            if message.number not in self._open:
                self._open[message.number] = []
                self._fresh.append(message.number)
        return ManualMessage(
            message.number, message.body, message.topic, message.key, message.partition, message.queue,
            message.header_block, self,
        )  # fmt: skip

    def forget(self, numbers: Iterable[int]) -> None:
        """Nothing waits for these messages any more: they are handled, or come again."""
        with self._lock:
            for number in numbers:
                for kept in self._open.pop(number, ()):
                    kept.missing -= 1
                    self._give_unless_in_order(kept)
            self._give_first()

    def oldest(self) -> int:
        """The first message that is not acknowledged; 0 when all are."""
        with self._lock:
            return min(self._open, default=0)

    def forget_within(self, first: int, last: int) -> None:
        """`forget` all from `first` to `last`."""
        with self._lock:
            numbers = [number for number in self._open if first <= number <= last]
        self.forget(numbers)

    def answer(self, give: Give, repeated: Collection[int] = (), *, in_order: bool = False) -> None:
        """Give an answer once all is acknowledged that was delivered since the last one, and all that is `repeated`.

        One that is to be `in_order` is given after those of all calls before this one, the others when they can be.
        """
        kept = _Kept(give, in_order)
        with self._lock:
            if self._over:
                give(False)
                return
            waited_for = self._fresh
            if repeated:
                waited_for = [*{*waited_for, *(number for number in self._open if number in repeated)}]
            for number in waited_for:
                if (answers := self._open.get(number)) is not None:
                    answers.append(kept)
                    kept.missing += 1
            self._fresh = []
            self._answers.append(kept)
            self._give_unless_in_order(kept)
            self._give_first()

    def settle(self, push: Push, reply: Reply, give: Give, *, repeated: bool) -> None:
        """Give the reply to a push that listeners took, once what they took is acknowledged. On the dispatch thread.

        `repeated` says that the push may hold messages of which an earlier answer was lost. What ends a run, and what
        is parked, the host can note only when it knows of everything before it; and with an empty push it asks whether
        that has ended.
        """
        last_id = last_id_of(push)
        in_order = reply.status != Status.OK or bool(reply.failures) or not push.batches
        for failure in reply.failures or ():
            self.forget_within(failure.id, failure.last)
        if push.again:
            repeating: Collection[int] = {message.number for _, part in batches(push, -1) for message in part}
        elif reply.status == Status.FAILED:
            self.forget_within(reply.position + 1, last_id)
            repeating = range(push.after + 1, reply.position + 1)
        else:
            repeating = range(push.after + 1, last_id + 1) if repeated and reply.status == Status.OK else ()
        self.answer(give, repeating, in_order=in_order)

    def end(self) -> None:
        """What is not acknowledged now never will be."""
        with self._lock:
            self._over = True
            self._open.clear()
            for kept in self._answers:
                if not kept.given:
                    kept.give(False)
            self._answers.clear()

    def _give_unless_in_order(self, kept: _Kept) -> None:
        if not (kept.missing or kept.in_order or kept.given):
            kept.given = True
            kept.give(True)

    def _give_first(self) -> None:
        while self._answers and (self._answers[0].given or not self._answers[0].missing):
            if not (kept := self._answers.popleft()).given:
                kept.give(True)


def by_hand(listener: Registered, deliver: Callable[[Message], ManualMessage]) -> Registered:
    """A listener that gets messages to be acknowledged."""
    call, given = listener.call, _each(deliver) if listener.form == "batch" else deliver
    if listener.is_async:

        async def awaited(argument: object) -> object:
            return await call(given(argument))  # type: ignore[arg-type]

        return msgspec.structs.replace(listener, call=awaited)
    return msgspec.structs.replace(listener, call=lambda argument: call(given(argument)))


def _each(deliver: Callable[[Message], ManualMessage]) -> Callable[[list[Message]], list[ManualMessage]]:
    return lambda messages: [deliver(message) for message in messages]
