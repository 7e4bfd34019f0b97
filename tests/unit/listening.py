"""Messages and listeners for the tests of listeners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from delivery.model import Message
from subscriber.listeners import Calls, Form, Where, check_listener


def message(number: int) -> Message:
    return Message(number, b"body", "", None, 0, "flights")


MESSAGES = [message(number) for number in (10, 11, 15, 16)]


def hop(call: Callable[[Any], Awaitable[object]], argument: object) -> object:
    """Stands for the dispatcher's: a loop for each call."""

    async def run() -> object:
        return await call(argument)

    return trio.run(run)


def calls(*listeners: tuple[Form, Callable[..., object]], where: Where | None = None) -> Calls:
    return Calls([check_listener(call, form) for form, call in listeners], hop, where)


def noting(name: str, seen: list[tuple[str, int]], failing: int | None = None) -> Callable[[Message], None]:
    def listener(message: Message) -> None:
        if message.number == failing:
            raise ValueError(f"{name} does not like {failing}")
        seen.append((name, message.number))

    return listener
