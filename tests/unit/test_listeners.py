"""MessageListeners: which functions are taken, in which order they are called, and what a failure leaves."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import pytest
import trio

from delivery.errors import InvalidRequest
from delivery.model import Message
from subscriber.listeners import Abandoned, Calls, Form, ListenerFailed, check_listener, check_where
from tests.unit.listening import MESSAGES, calls, noting


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


# -- where


def odd(message: Message) -> object:
    return message.number % 2


@pytest.mark.parametrize("form", ["message", "batch"])
@pytest.mark.parametrize("make", [noting, async_noting], ids=["sync", "async"])
def test_listeners_are_called_where_the_message_is_wanted(form: Form, make: Callable[..., Any]) -> None:
    seen: list[Any] = []
    batches: list[list[Message]] = []
    calls((form, batches.append if form == "batch" else make("a", seen)), where=odd).run(iter(MESSAGES))
    assert seen == ([("a", 11), ("a", 15)] if form == "message" else [])
    assert batches == ([[MESSAGES[1], MESSAGES[2]]] if form == "batch" else [])


def test_a_push_of_which_nothing_is_wanted_is_handled_without_any_call() -> None:
    calls(("batch", lambda _: pytest.fail("nothing is wanted")), where=lambda _: False).run(MESSAGES)


def test_a_message_of_which_it_cannot_be_said_is_not_handled_and_those_before_it_are() -> None:
    def where(message: Message) -> bool:
        if message.number == 15:
            raise ValueError("what is it?")
        return True

    seen: list[tuple[str, int]] = []
    assert failed(calls(("message", noting("a", seen)), where=where), iter(MESSAGES)) == 14
    assert seen == [("a", 10), ("a", 11)]
    assert failed(calls(("message", noting("a", seen, 11)), where=where), iter(MESSAGES)) == 10


def test_an_async_function_cannot_say_what_is_wanted() -> None:
    with pytest.raises(InvalidRequest, match="where must be a sync function"):
        check_where(coroutine)
    with pytest.raises(ListenerFailed):
        calls(("message", print), where=lambda message: coroutine(message)).run(MESSAGES)  # noqa: PLW0108 - the point


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
