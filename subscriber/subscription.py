"""The Subscription: an application's handle on one queue that it subscribes to, and the events about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from delivery.errors import HootError, InvalidRequest
from delivery.metastore.request import Request
from subscriber.listeners import LISTENERS_MAX, Concurrency, Form, Registered, Where, check_listener

State = Literal["new", "attached", "suspended", "taken_over", "deleted", "stopped"]
"""`new`: the subscriber was not started. `attached`: registered, messages come. `suspended`: ZooKeeper cannot be
reached; messages may go on coming, and the subscription is attached again as soon as it can be. `taken_over`: another
subscriber forced its way in. `deleted`: the subscription or its queue was deleted. `stopped`: the subscriber was; the
durable state stays."""

Kind = Literal["attached", "suspended", "taken_over", "deleted", "failed", "moved"]

F = TypeVar("F", bound=Callable[..., Any])


def is_pattern(queue: str) -> bool:
    """Whether it stands for queues whose names match it."""
    return "*" in str(queue)


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a subscription: its new state, or one of these two.

    `failed`: a push could not be handled. `moved`: the messages of a partition come from another owner now; told once,
    before the first of them, and never for the first owner since the subscription was attached. There is nothing to do:
    deliveries go on by themselves.
    """

    kind: Kind
    queue: str
    error: BaseException | None = None
    """What a listener raised, or the HootError that ended the subscription."""
    partition: int | None = None
    """Of `failed` and `moved`."""
    former_epoch: int | None = None
    """Of `moved`: under which the former owner pushed."""
    epoch: int | None = None
    """Of `moved`: under which it is owned now; higher, and by more than one if owners in between sent nothing."""


class Subscription:
    """One queue as a subscriber gets it. Made by `subscribe`; thread-safe.

    Listeners can be added at any time, by a call or as a decorator; one that is added while messages come is called
    from the next push on.
    """

    def __init__(
        self, name: str, request: Request, listeners: tuple[Registered, ...], where: Where | None = None, *,
        manual: bool = False, concurrency: Concurrency = 1,
    ) -> None:  # fmt: skip
        self.name = name
        """The subscriber's: under it the durable state is kept in the queue."""
        self.request = request
        self.state: State = "new"
        self.error: HootError | None = None
        """Why the subscription ended, when it was taken over or deleted."""
        self.listeners = listeners
        """In the order of their registration."""
        self.where = where
        """What messages must fulfil for the listeners to be called."""
        self.manual = manual
        """Whether a message counts as handled when the application acknowledges it, not when its listeners return."""
        self.concurrency = concurrency
        """How many callbacks may run at the same time."""
        self.parts: dict[str, Subscription] = {}
        """Each with its own state: of a pattern (`orders.*`) the queues that it was found to match; of a queue the one
        of what was replayed to this subscription alone, if anything was (docs/spark.md)."""
        self.delivering = True
        """Whether listeners are called: see `stop_delivery`."""
        self.on_wanted: Callable[[], object] = bool
        """Called when messages are wanted again, while the subscriber runs."""

    def __repr__(self) -> str:
        return f"<Subscription {self.name} on {self.queue}, {self.state}>"

    @property
    def queue(self) -> str:
        """The queue subscribed to, or the pattern."""
        return self.request.queue

    def listener(self, call: F) -> F:
        """Call `call(message)` for each message; gives `call` back, so that it serves as a decorator.

        A sync function is called on a thread of the subscriber's, an async one as a coroutine in the trio loop
        (the program's own with AsyncSubscriber). No two callbacks of a subscription run at the same time, unless it has
        `concurrency`; those of several subscriptions do when they take long. An exception
        means that the message was not handled, and so does Retry or Reject, returned or raised: docs/retries.md says
        what follows. Raises InvalidRequest when it cannot be called with one positional argument.
        """
        return self._add(call, "message")

    def batch_listener(self, call: F) -> F:
        """Call `call(messages)` with a list of all messages of a push, all of one partition and in order.

        As `listener` otherwise; an exception, Retry or Reject means that none of them was handled.
        """
        return self._add(call, "batch")

    def stop_delivery(self) -> None:
        """Call no listener, from the end of the push under way on, until `start_delivery`; from any thread.

        Messages that come meanwhile are kept here, as many as region hosts send without an answer, and nothing of them
        is acknowledged. Other subscriptions go on. Said before the start, it begins like that. Twice is fine.
        """
        self.delivering = False
        for part in tuple(self.parts.values()):
            part.stop_delivery()

    def start_delivery(self) -> None:
        """Call listeners again, first with what was kept; from any thread. Twice is fine."""
        self.delivering = True
        self.on_wanted()
        for part in tuple(self.parts.values()):
            part.start_delivery()

    def _add(self, call: F, form: Form) -> F:
        registered = check_listener(call, form)
        if len(self.listeners) >= LISTENERS_MAX:
            raise InvalidRequest(f"a subscription can have {LISTENERS_MAX} listeners")
        self._share((*self.listeners, registered))
        return call

    def _share(self, listeners: tuple[Registered, ...]) -> None:
        self.listeners = listeners
        for part in tuple(self.parts.values()):
            part._share(listeners)  # noqa: SLF001 - of the same kind
