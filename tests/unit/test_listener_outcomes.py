"""What listeners say of a message by returning, raising, or taking too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from delivery.errors import InvalidRequest
from delivery.model import Message
from subscriber.listeners import Calls, Form, ListenerFailed, check_listener
from subscriber.outcomes import Outcome, Reject, Retry
from tests.unit.listening import MESSAGES, calls, hop, noting

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


# -- listeners that take too long


@pytest.mark.parametrize("form", ["message", "batch"])
def test_an_async_listener_that_takes_too_long_is_cancelled_and_has_failed(form: Form) -> None:
    ended: list[str] = []

    async def slow(argument: object) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("cancelled")

    with pytest.raises(ListenerFailed) as caught:
        Calls([check_listener(slow, form)], hop, timeout_seconds=0.01).run(MESSAGES)
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert (caught.value.handled, ended) == (9, ["cancelled"])


def test_the_time_counts_for_each_message_and_from_its_call() -> None:
    seen: list[tuple[str, int]] = []

    async def quick(message: Message) -> object:
        await trio.sleep(0.02)
        seen.append(("a", message.number))
        return None

    Calls([check_listener(quick, "message")], hop, timeout_seconds=30).run(MESSAGES)
    assert len(seen) == len(MESSAGES)
    rejected = Reject()

    async def rejecting(message: Message) -> object:
        return rejected

    with pytest.raises(ListenerFailed) as caught:
        Calls([check_listener(rejecting, "message")], hop, timeout_seconds=30).run(MESSAGES)
    assert caught.value.__cause__ is rejected
