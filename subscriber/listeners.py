"""MessageListeners: checking them, and calling them in turn (seed 004, section 3.5.2).

A message listener is called with one message, a batch listener with a list of all messages of a push. They are called
in the order of their registration. One that raises, or returns Retry or Reject, ends the push: the message, or with a
batch listener the whole list, counts as not handled, the listeners behind it are not called for it, and it is
delivered again later, to all of them. Whatever else they return means nothing.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Literal

import msgspec
import trio

from delivery.errors import InvalidRequest
from delivery.model import Message
from subscriber.outcomes import Outcome

Form = Literal["message", "batch"]
AsyncCall = Callable[[Any], Awaitable[object]]
Hop = Callable[[AsyncCall, Any], object]
"""Runs an async function with its argument in the trio loop, from the dispatch thread, and waits for its end."""
Where = Callable[[Message], object]
"""Whether the listeners are to be called for a message; without, it counts as handled."""
Pass = Callable[[Iterable[Message]], None]
"""Calls one or more listeners with messages; raises ListenerFailed, or Abandoned."""

Concurrency = int | Literal["auto"]
"""How many callbacks of a subscription may run at the same time; "auto": as many as get more done (staff)."""

LISTENERS_MAX = 100
CONCURRENCY_MAX = 256
"""Each is a thread."""


class Abandoned(Exception):
    """The subscriber has ended and waits no longer for a listener: what became of its message is not known."""


class ListenerFailed(Exception):
    """A listener did not handle `message`, or a list from there to the id `last`, and `__cause__` is why.

    Everything before it was handled.
    """

    def __init__(self, message: Message, last: int) -> None:
        super().__init__(message.number, last)
        self.message, self.last = message, last

    @property
    def first(self) -> int:
        """The id of the message."""
        return self.message.number

    @property
    def handled(self) -> int:
        """Everything up to here was handled."""
        return self.first - 1


def failed_at(message: Message, error: BaseException) -> ListenerFailed:
    """`message` was not handled because of `error`."""
    failed = ListenerFailed(message, message.number)
    failed.__cause__ = error
    return failed


class Registered(msgspec.Struct, frozen=True):
    """A listener that passed the checks."""

    call: Callable[..., Any]
    form: Form
    is_async: bool


def check_listener(call: object, form: Form) -> Registered:
    """Raises InvalidRequest unless `call` is a function, sync or async, that takes one positional argument."""
    name = str(getattr(call, "__qualname__", None) or repr(call)[:60])
    if not callable(call):
        raise InvalidRequest(f"a listener must be a function of one argument, not {name}")
    body = _body(call)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise InvalidRequest(f"listener {name} is a generator: calling it would do nothing, so it cannot use yield")
    try:
        inspect.signature(call).bind(None)
    except TypeError as error:
        wanted = "a message" if form == "message" else "a list of messages"
        raise InvalidRequest(f"listener {name} cannot be called with {wanted} as its only argument: {error}") from None
    except ValueError:
        pass  # a builtin that does not tell its signature
    return Registered(call, form, inspect.iscoroutinefunction(body))


def check_where(call: Where | None) -> Where | None:
    """`call` if it can be asked of each message. Raises InvalidRequest as `check_listener`, and for an async one."""
    if call is not None and check_listener(call, "message").is_async:
        raise InvalidRequest("where must be a sync function: it is asked for every message")
    return call


def check_concurrency(number: object) -> Concurrency:
    """`number` if so many callbacks may run at the same time. Raises InvalidRequest."""
    if number == "auto":
        return "auto"
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= CONCURRENCY_MAX:
        return number
    raise InvalidRequest(
        f"concurrency must be a whole number from 1 to {CONCURRENCY_MAX}, or 'auto', not {str(number)[:40]!r}"
    )


def _body(call: object) -> object:
    """What runs when it is called: itself, or the method of an object that can be called."""
    direct = isinstance(call, type | partial | FunctionType | MethodType | BuiltinFunctionType)
    return call if direct else inspect.getattr_static(type(call), "__call__", call)


class Calls:
    """The listeners of a subscription as they stand now, ready to be called from the dispatch thread.

    Neighbouring message listeners share a pass, so that each message goes through them in turn before the next one. A
    pass behind another one gets only what the one before handled.
    """

    __slots__ = ("_passes", "_where", "outstay_seconds", "takes_lists", "whole")

    def __init__(
        self, listeners: Sequence[Registered], hop: Hop, where: Where | None = None, timeout_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`timeout_seconds`, by the clock, bounds each call of a listener; 0 does not."""
        self.outstay_seconds = timeout_seconds * len(listeners) if not any(one.is_async for one in listeners) else 0.0
        """Where a message takes longer than this, a sync listener took longer than it may; 0 when that is not told."""
        if timeout_seconds:
            listeners = [_bounded(one, timeout_seconds, clock) for one in listeners]
        self._where = where
        self._passes: list[Pass] = []
        for form, group in groupby(listeners, key=lambda listener: listener.form):
            if form == "message":
                self._passes.append(_message_pass(list(group), hop))
            else:
                self._passes += [partial(_batch, one.call, hop if one.is_async else None) for one in group]
        several = len(self._passes) > 1 or any(one.is_async or one.form == "batch" for one in listeners)
        self.whole = several or where is not None
        """Whether `run` is to be given all messages of a push at once, as a list, or may take them piecemeal."""

        self.takes_lists = any(one.form == "batch" for one in listeners)

    def run_each(self, messages: Iterable[Message]) -> None:
        """As `run`, for message listeners alone. An iterator that it fails at has been taken from up to there."""
        assert not self.takes_lists
        if self._where is None:
            self._passes[0](messages)
            return
        for message in messages:  # one by one: what becomes of it decides which ones behind it are to come at all
            self.run([message])

    def run(self, messages: Iterable[Message]) -> None:
        """Call the listeners with messages, a list when `whole`.

        Raises ListenerFailed with the ids that all of them handled, and Abandoned.
        """
        if not self.whole:
            self._passes[0](messages)
            return
        failure: ListenerFailed | None = None
        if self._where is not None:
            messages, failure = _chosen(self._where, messages)
        for one in self._passes:
            if not messages:
                break
            try:
                one(messages)
            except ListenerFailed as error:
                failure = error
                messages = [message for message in messages if message.number <= error.handled]
        if failure is not None:
            raise failure


def _bounded(listener: Registered, seconds: float, clock: Callable[[], float]) -> Registered:
    """One that fails when it takes longer: an async one is cancelled, what a sync one says then counts for nothing."""
    call = listener.call

    async def cancelled(argument: object) -> object:
        with trio.move_on_after(seconds):
            return await call(argument)
        raise TimeoutError(f"the listener took longer than {seconds:g} s and was cancelled")

    def waited_for(argument: object) -> object:
        began = clock()
        error: Exception | None = None
        result: object = None
        try:
            result = call(argument)
        except Exception as raised:  # noqa: BLE001 - what it raises too late counts as little as what it returns
            error = raised
        if (took := clock() - began) > seconds:
            raise TimeoutError(f"the listener took {took:.3g} s, and {seconds:g} s are its limit") from error
        if error is not None:
            raise error
        return result

    return msgspec.structs.replace(listener, call=cancelled if listener.is_async else waited_for)


def _chosen(where: Where, messages: Iterable[Message]) -> tuple[list[Message], ListenerFailed | None]:
    """The messages that are wanted, up to the first one of which that cannot be said."""
    chosen: list[Message] = []
    for message in messages:
        try:
            wanted = where(message)
            _judge(wanted)
        except BaseException as error:  # noqa: BLE001 - as what a listener raises
            return chosen, failed_at(message, error)
        if wanted:
            chosen.append(message)
    return chosen, None


def _message_pass(listeners: Sequence[Registered], hop: Hop) -> Pass:
    calls = [listener.call for listener in listeners]
    if all(listener.is_async for listener in listeners):
        return lambda messages: _hop_over(calls, messages, hop)
    if len(calls) == 1:
        return partial(_each, calls[0])
    return partial(
        _each, _in_turn([partial(hop, _judging(one.call)) if one.is_async else one.call for one in listeners])
    )


def _in_turn(calls: Sequence[Callable[[Message], object]]) -> Callable[[Message], object]:
    def call_all(message: Message) -> None:
        for call in calls:
            _judge(call(message))

    return call_all


def _each(call: Callable[[Message], object], messages: Iterable[Message]) -> None:
    """The hot loop of a subscriber."""
    rest = iter(messages)
    message = next(rest, None)
    if message is None:
        return
    try:
        _judge(call(message))
        for message in rest:
            if (result := call(message)) is not None:
                _judge(result)
    except Abandoned:
        raise
    except BaseException as error:
        raise ListenerFailed(message, message.number) from error


def _hop_over(calls: Sequence[AsyncCall], messages: Iterable[Message], hop: Hop) -> None:
    """All of the messages in one hop to the loop and back."""
    at: Message | None = None

    async def each(messages: Iterable[Message]) -> None:
        nonlocal at
        for at in messages:
            for call in calls:
                _judge(await call(at))

    try:
        hop(each, messages)
    except Abandoned:
        raise
    except BaseException as error:
        assert at is not None, "the hop itself raises Abandoned alone"
        raise ListenerFailed(at, at.number) from error


def _batch(call: Callable[[Any], Any], hop: Hop | None, messages: Iterable[Message]) -> None:
    batch = list(messages)  # its own, for the listener may keep or change it
    first, last = batch[0], batch[-1].number
    try:
        if hop is None:
            _judge(call(batch))
        else:
            hop(_judging(call), batch)
    except Abandoned:
        raise
    except BaseException as error:
        raise ListenerFailed(first, last) from error


def _judging(call: AsyncCall) -> AsyncCall:
    async def judged(argument: object) -> None:
        _judge(await call(argument))

    return judged


def _judge(result: object) -> None:
    """Raise what a listener returned, if it says that the message was not handled.

    A lambda around an async function looks like a sync listener, and would acknowledge what nobody handled.
    """
    if isinstance(result, Outcome):
        raise result
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("the listener returned a coroutine that nobody awaits: register the async function itself")
