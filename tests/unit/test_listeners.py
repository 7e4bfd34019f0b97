"""MessageListeners: which functions are taken, in which order they are called, and what a failure leaves."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import pytest
import trio

from delivery.errors import InvalidRequest
from delivery.model import Message
from subscriber.listeners import Abandoned, Calls, Form, ListenerFailed, check_listener
from subscriber.outcomes import Outcome, Reject, Retry


def message(number: int) -> Message:
    return Message(number, b"body", "", None, 0, "flights")


MESSAGES = [message(number) for number in (10, 11, 15, 16)]


def hop(call: Callable[[Any], Awaitable[object]], argument: object) -> object:
    """Stands for the dispatcher's: a loop for each call."""

    async def run() -> object:
        return await call(argument)

    return trio.run(run)


def calls(*listeners: tuple[Form, Callable[..., object]]) -> Calls:
    return Calls([check_listener(call, form) for form, call in listeners], hop)


def noting(name: str, seen: list[tuple[str, int]], failing: int | None = None) -> Callable[[Message], None]:
    def listener(message: Message) -> None:
        if message.number == failing:
            raise ValueError(f"{name} does not like {failing}")
        seen.append((name, message.number))

    return listener


def async_noting(name: str, seen: list[tuple[str, int]], failing: int | None = None) -> Callable[..., Any]:
    note = noting(name, seen, failing)

    async def listener(message: Message) -> None:
        await trio.lowlevel.checkpoint()
        note(message)

    return listener


# -- which functions are taken


class Method:
    def one(self, message: Message) -> None: ...

    def none(self) -> None: ...

    def __call__(self, message: Message) -> None: ...


class AsyncCallable:
    async def __call__(self, message: Message) -> None: ...


def two(message: Message, more: str) -> None: ...


async def coroutine(message: Message) -> None: ...


def keyword_only(*, message: Message) -> None: ...


def generator(message: Message) -> Iterator[int]:
    yield message.number


@pytest.mark.parametrize(
    ("call", "is_async"),
    [
        (Method().one, False),
        (Method(), False),
        (lambda message: None, False),
        (lambda *arguments: None, False),
        (functools.partial(two, more="x"), False),
        ([].append, False),
        (print, False),
        (coroutine, True),
        (functools.partial(coroutine), True),
        (AsyncCallable(), True),
    ],
)  # fmt: skip
def test_whatever_takes_one_argument_is_a_listener(call: Callable[..., object], is_async: bool) -> None:
    assert check_listener(call, "message").is_async is is_async


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (Method().none, "cannot be called with a message"),
        (two, "'more'"),
        (keyword_only, "cannot be called"),
        (generator, "generator"),
        ("flights", "must be a function"),
        (None, "must be a function"),
    ],
)
def test_anything_else_is_refused_when_it_is_registered(call: object, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_listener(call, "message")


# -- the order of calls


@pytest.mark.parametrize("make", [noting, async_noting], ids=["sync", "async"])
def test_each_message_goes_through_all_message_listeners_before_the_next_one(make: Callable[..., Any]) -> None:
    seen: list[tuple[str, int]] = []
    calls(("message", make("a", seen)), ("message", make("b", seen))).run(iter(MESSAGES))
    assert seen == [(name, one.number) for one in MESSAGES for name in ("a", "b")]


def test_sync_and_async_listeners_mix_in_the_order_of_registration() -> None:
    seen: list[tuple[str, int]] = []
    listeners = noting("a", seen), async_noting("b", seen), noting("c", seen)
    calls(*(("message", one) for one in listeners)).run(MESSAGES)
    assert seen == [(name, one.number) for one in MESSAGES for name in ("a", "b", "c")]


def test_a_batch_listener_gets_a_list_of_its_own() -> None:
    taken: list[list[Message]] = []

    def greedy(messages: list[Message]) -> None:
        taken.append(messages[:])
        messages.clear()

    async def later(messages: list[Message]) -> None:
        await trio.lowlevel.checkpoint()
        taken.append(messages)

    calls(("batch", greedy), ("batch", later)).run(MESSAGES)
    assert taken == [MESSAGES, MESSAGES]


def test_one_sync_message_listener_takes_messages_piecemeal_and_everything_else_whole_pushes() -> None:
    assert not calls(("message", print)).whole
    assert not calls(("message", print), ("message", print)).whole
    assert calls(("batch", print)).whole
    assert calls(("message", coroutine)).whole
    assert calls(("message", print), ("batch", print)).whole


def test_no_messages_call_nobody() -> None:
    calls(("message", noting("a", [], 0))).run(iter(()))


# -- failures


def failed(ready: Calls, messages: Iterable[Message]) -> int:
    with pytest.raises(ListenerFailed) as caught:
        ready.run(messages)
    assert isinstance(caught.value.__cause__, ValueError)
    return caught.value.handled


@pytest.mark.parametrize("make", [noting, async_noting], ids=["sync", "async"])
@pytest.mark.parametrize(("failing", "handled"), [(10, 9), (11, 10), (15, 14), (16, 15)])
def test_a_failing_message_is_not_handled_and_those_before_it_are(
    make: Callable[..., Any], failing: int, handled: int
) -> None:
    seen: list[tuple[str, int]] = []
    assert failed(calls(("message", make("a", seen, failing))), iter(MESSAGES)) == handled
    assert seen == [("a", one.number) for one in MESSAGES if one.number < failing]


def test_listeners_behind_a_failing_one_are_not_called_for_its_message() -> None:
    seen: list[tuple[str, int]] = []
    ready = calls(("message", noting("a", seen)), ("message", noting("b", seen, 11)), ("message", noting("c", seen)))
    assert failed(ready, iter(MESSAGES)) == 10
    assert seen == [("a", 10), ("b", 10), ("c", 10), ("a", 11)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failing_batch_listener_handled_nothing(is_async: bool) -> None:
    def sync_failing(messages: list[Message]) -> None:
        raise ValueError("no")

    async def async_failing(messages: list[Message]) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("no")

    assert failed(calls(("batch", async_failing if is_async else sync_failing)), MESSAGES) == 9


def test_a_batch_listener_behind_a_failing_listener_gets_what_that_one_handled() -> None:
    seen: list[tuple[str, int]] = []
    batches: list[list[Message]] = []
    ready = calls(("message", noting("a", seen, 15)), ("batch", batches.append), ("message", noting("b", seen, 11)))
    assert failed(ready, MESSAGES) == 10
    assert batches == [MESSAGES[:2]]
    assert seen == [("a", 10), ("a", 11), ("b", 10)]


def test_a_lambda_around_an_async_function_fails_instead_of_acknowledging_what_nobody_handled() -> None:
    for form in ("message", "batch"):
        with pytest.raises(ListenerFailed) as caught:
            calls((form, lambda argument: coroutine(argument))).run(MESSAGES)  # noqa: PLW0108 - it is the point
        assert caught.value.handled == 9
        assert "register the async function itself" in str(caught.value.__cause__)


def test_a_listener_that_the_end_interrupts_says_nothing_about_its_message() -> None:
    def ended(call: Callable[[Any], Awaitable[object]], argument: object) -> object:
        raise Abandoned

    for form in ("message", "batch"):
        with pytest.raises(Abandoned):
            Calls([check_listener(coroutine, form)], ended).run(MESSAGES)


# -- saying that a message was not handled


def outcome_of(listener: Callable[..., object], form: Form = "message") -> tuple[BaseException | None, int, int]:
    with pytest.raises(ListenerFailed) as caught:
        calls((form, listener)).run(MESSAGES)
    return caught.value.__cause__, caught.value.first, caught.value.last


@pytest.mark.parametrize("outcome", [Retry(after=5), Reject("no such customer")], ids=["Retry", "Reject"])
@pytest.mark.parametrize("at", [10, 15])
def test_returning_an_outcome_is_the_same_as_raising_it(outcome: Outcome, at: int) -> None:
    def returning(message: Message) -> object:
        return outcome if message.number == at else "fine"

    def raising(message: Message) -> object:
        if message.number == at:
            raise outcome
        return None

    async def returning_later(message: Message) -> object:
        await trio.lowlevel.checkpoint()
        return returning(message)

    for listener in (returning, raising, returning_later):
        assert outcome_of(listener) == (outcome, at, at)


def test_the_outcome_of_a_batch_listener_is_that_of_its_whole_list() -> None:
    outcome = Reject()

    async def later(messages: list[Message]) -> object:
        await trio.lowlevel.checkpoint()
        return outcome

    assert outcome_of(lambda messages: outcome, "batch") == (outcome, 10, 16)
    assert outcome_of(later, "batch") == (outcome, 10, 16)


def test_listeners_behind_one_that_rejects_are_not_called_for_its_message() -> None:
    seen: list[tuple[str, int]] = []
    outcome = Reject()
    rejecting = lambda message: outcome if message.number == 11 else None  # noqa: E731
    for first in (rejecting, _later(rejecting)):
        seen.clear()
        with pytest.raises(ListenerFailed) as caught:
            calls(("message", first), ("message", noting("b", seen))).run(MESSAGES)
        assert (caught.value.__cause__, caught.value.handled, seen) == (outcome, 10, [("b", 10)])


def _later(call: Callable[[Message], object]) -> Callable[..., Any]:
    async def later(message: Message) -> object:
        await trio.lowlevel.checkpoint()
        return call(message)

    return later


def test_whatever_else_a_listener_returns_means_nothing() -> None:
    for result in (False, 0, "no", [Retry()], Retry, ValueError("returned")):
        calls(("message", lambda message, result=result: result)).run(MESSAGES)
        calls(("batch", lambda messages, result=result: result)).run(MESSAGES)


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), "soon", 8 * 86_400])
def test_a_time_that_is_none_is_refused_where_it_is_said(after: Any) -> None:
    with pytest.raises(InvalidRequest):
        Retry(after)


def test_a_time_to_come_again_is_never_rounded_down() -> None:
    assert (Retry(0.0004).after_ms, Retry(0).after_ms, Retry().after_ms) == (1, 0, None)
