"""Acknowledging by hand: a message counts as handled when the application says so, not when its listener returns.

A listener gets messages with `ack`, which may be called later, from any thread or task. The answer to a push is kept
back until every message of it that a listener got was acknowledged; then it leaves, whatever was pushed before. What a
host repeats meanwhile calls nobody again, and its answer waits for the same messages.

A message that nobody acknowledges within the subscription's limit, or that is given back by `nack`, is taken back:
`lapsing` decides what that means for the answers.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from delivery.errors import InvalidRequest
from delivery.model import Message
from subscriber.inbox import Status, Turn
from subscriber.listeners import Registered
from subscriber.outcomes import AFTER_MAX
from subscriber.pushes import Push, Reply, batches, last_id_of

Give = Callable[[Any], object]
"""Gives an answer when all that it waited for was acknowledged; None when that will not be."""


class State(enum.Enum):
    """What became of a message that a listener got."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """The application gave it back, which the host is still to hear."""
    TAKEN_BACK = "taken back"
    """It comes again, or somebody else gets it: nothing that is said of it counts any more."""


class Kept:
    """An answer, and how many messages it waits for."""

    __slots__ = ("beginning", "give", "given", "in_order", "missing", "push", "reply")

    def __init__(self, give: Give, *, in_order: bool, reply: Any = True, push: Push | None = None) -> None:  # noqa: ANN401 - a PushReply
        self.give, self.in_order = give, in_order
        self.reply, self.push = reply, push
        self.missing, self.given = 0, False
        self.beginning = 0
        """Of the inbox, when the push was begun."""

    @property
    def turn(self) -> Turn | None:
        """That of its push."""
        return None if self.push is None else (self.push.epoch, self.push.run)

    @property
    def again(self) -> bool:
        """Whether its push repeats parked messages."""
        return self.push is not None and bool(self.push.again)


class Taken:
    """A message that a listener got, until it is acknowledged or taken back; each later delivery has its own."""

    __slots__ = ("answers", "key", "number", "owner", "since", "state", "until", "why")

    def __init__(self, owner: Unacknowledged, number: int, key: bytes | None) -> None:
        self.owner, self.number, self.key = owner, number, key
        self.answers: list[Kept] = []
        """That wait for it."""
        self.state = State.OPEN
        self.since = math.inf
        """When the callbacks that got it had returned, by the clock."""
        self.until = -math.inf
        """So long it may take at any rate."""
        self.why: Exception | None = None
        """With what it was given back."""

    def due(self, limit: float) -> float:
        """When it is to be taken back, if it may take so many seconds; 0 for no limit."""
        if self.state is State.REFUSED:
            return -math.inf if self.since < math.inf else math.inf
        return max(self.since + limit, self.until) if limit else math.inf


class ManualMessage(Message, frozen=True, gc=False):
    """A message of a subscription that is acknowledged by hand."""

    taken: Taken | None = None

    def ack(self) -> bool:
        """It is handled; from any thread or task. Whether that counts: twice it does.

        False when it is too late: it was taken back, as it was not acknowledged in time, or given back, or the
        subscription ended. Then it comes again, here or to another subscriber, and is handled twice if it was handled.
        """
        return self.taken is None or self.taken.owner.acknowledge(self.taken)

    def nack(self, why: Exception | None = None) -> bool:
        """It is not handled, which means what raising `why` in the listener does; from any thread or task.

        `why` may be a Retry or a Reject; without it the message comes again when the policy says so. False when it is
        too late, or was acknowledged: then nothing happens. Raises InvalidRequest for what is no Exception.
        """
        if why is not None and not isinstance(why, Exception):
            raise InvalidRequest(f"a message is given back with an exception, or with nothing, not {str(why)[:40]!r}")
        return self.taken is not None and self.taken.owner.refuse(self.taken, why)

    def extend(self, seconds: float) -> bool:
        """It takes longer: it is not taken back within so many seconds from now. Never less than without that.

        Whether it may still be acknowledged. Raises InvalidRequest for a time that is none, or above a week.
        """
        given: object = seconds
        if not (isinstance(given, int | float) and 0 <= given <= AFTER_MAX):
            raise InvalidRequest(f"a message can be kept for 0 to {AFTER_MAX:g} seconds more, not {str(seconds)[:40]}")
        return self.taken is not None and self.taken.owner.extend(self.taken, seconds)


class Unacknowledged:
    """What is not acknowledged of one partition of an attached subscription. Thread-safe.

    Acknowledging a message counts for each time that it was delivered since it was taken back last.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, on_due: Callable[[float], object] = bool
    ) -> None:  # fmt: skip
        """`on_due` hears of a time at which something may have to be taken back."""
        self.lock = threading.RLock()
        """Held while answers are given, so that they leave in order; and while it is decided what is taken back."""
        self._clock, self._on_due = clock, on_due
        self.open: dict[int, Taken] = {}
        self._fresh: list[Taken] = []
        """Delivered since the last answer."""
        self.answers: deque[Kept] = deque()
        """In the order of their pushes, with those behind one that is not given."""
        self._over = False

    # -- for the application

    def acknowledge(self, taken: Taken) -> bool:
        """See ManualMessage.ack."""
        with self.lock:
            if taken.state is State.OPEN:
                self._settle(taken, State.ACKNOWLEDGED)
                self.give()
            return taken.state is State.ACKNOWLEDGED

    def refuse(self, taken: Taken, why: Exception | None) -> bool:
        """See ManualMessage.nack."""
        with self.lock:
            if taken.state is not State.OPEN:
                return False
            taken.state, taken.why = State.REFUSED, why
        self._on_due(self._clock())
        return True

    def extend(self, taken: Taken, seconds: float) -> bool:
        """See ManualMessage.extend."""
        with self.lock:
            taken.until = max(taken.until, self._clock() + seconds)
            return taken.state is State.OPEN

    # -- for who calls listeners

    def deliver(self, message: Message) -> ManualMessage:
        """The message as a listener gets it, which has to be acknowledged from now on; after the end it cannot be."""
        with self.lock:
            taken = self.open.get(message.number)
            if taken is None:
                taken = Taken(self, message.number, message.key)
                if self._over:
                    taken.state = State.TAKEN_BACK
                else:
                    self.open[message.number] = taken
                    self._fresh.append(taken)
        return ManualMessage(
            message.number, message.body, message.topic, message.key, message.partition, message.queue,
            message.header_block, taken,
        )  # fmt: skip

    def oldest(self) -> int:
        """The first message that is not acknowledged; 0 when all are."""
        with self.lock:
            return min(self.open, default=0)

    def forget_within(self, first: int, last: int) -> None:
        """Nothing waits for the messages from `first` to `last` any more: they come again."""
        with self.lock:
            self.take_back([taken for number, taken in self.open.items() if first <= number <= last])
            self.give()

    def answer(self, kept: Kept, repeated: Collection[int] = (), limit: float = 0.0) -> None:
        """Give an answer once all is acknowledged that was delivered since the last one, and all that is `repeated`.

        One that is to be `in_order` is given after those of all calls before this one, the others when they can be.
        What was delivered may wait for `limit` seconds from now; 0 for ever.
        """
        with self.lock:
            waited_for, self._fresh = self._fresh, []
            now = self._clock()
            for taken in waited_for:
                taken.since = now
            if repeated:
                waited_for = [*{*waited_for, *(taken for number, taken in self.open.items() if number in repeated)}]
            waited_for = [taken for taken in waited_for if self.open.get(taken.number) is taken]
            if self._over:
                self.take_back(waited_for)
                kept.give(None)
                return
            for taken in waited_for:
                taken.answers.append(kept)
            kept.missing = len(waited_for)
            self.answers.append(kept)
            self._give_unless_in_order(kept)
            self.give()
        due = min((taken.due(limit) for taken in waited_for), default=math.inf)
        if due < math.inf:
            self._on_due(due)

    def settle(
        self, push: Push, reply: Reply, give: Give, *, repeated: bool, beginning: int = 0, limit: float = 0.0
    ) -> None:  # fmt: skip
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
        kept = Kept(give, in_order=in_order, reply=reply, push=push)
        kept.beginning = beginning
        self.answer(kept, repeating, limit)

    def end(self) -> None:
        """What is not acknowledged now never will be."""
        with self.lock:
            self._over = True
            for taken in self.open.values():
                taken.state = State.TAKEN_BACK
            self.open.clear()
            for kept in self.answers:
                if not kept.given:
                    kept.give(None)
            self.answers.clear()

    # -- for who decides what is taken back, with the lock

    def due(self, limit: float) -> float:
        """When the next message is to be taken back, if each may take so many seconds; infinite for never."""
        with self.lock:
            return min((taken.due(limit) for taken in self.open.values()), default=math.inf)

    def lapsed(self, limit: float) -> list[Taken]:
        """What is to be taken back now, in order."""
        now = self._clock()
        return [self.open[number] for number in sorted(self.open) if self.open[number].due(limit) <= now]

    def take_back(self, messages: Iterable[Taken]) -> None:
        """Nobody can acknowledge them any more, and nothing waits for them; `give` is to be called after that."""
        for taken in messages:
            self._settle(taken, State.TAKEN_BACK)

    def give(self) -> None:
        """Give the answers that wait for nothing."""
        while self.answers and (self.answers[0].given or not self.answers[0].missing):
            if not (kept := self.answers.popleft()).given:
                kept.give(kept.reply)

    def _settle(self, taken: Taken, state: State) -> None:
        taken.state = state
        del self.open[taken.number]
        answers, taken.answers = taken.answers, []  # the application may keep the message, and is not to keep the push
        for kept in answers:
            kept.missing -= 1
            self._give_unless_in_order(kept)

    def _give_unless_in_order(self, kept: Kept) -> None:
        if not (kept.missing or kept.in_order or kept.given):
            kept.given = True
            kept.give(kept.reply)


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
