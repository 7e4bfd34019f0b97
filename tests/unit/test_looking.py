"""What a subscriber tells of the callbacks that run: nothing is noted for it, the stacks are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from delivery.model import Message
from subscriber.dispatch import Dispatcher
from subscriber.listeners import Calls, check_listener
from subscriber.looking import Lookout

MESSAGES = [Message(number, b"", "", None, 3, "orders") for number in (70, 71)]


def look_at(calls: Callable[[Dispatcher], Calls], reached: threading.Event, release: Callable[[], object]) -> Any:
    """What is told of a dispatch thread that is at MESSAGES, once `reached` is set."""
    found: list[Any] = []

    async def story() -> None:
        dispatcher = Dispatcher()
        lookout = Lookout(dispatcher.task_of)

        def job() -> None:
            made = calls(dispatcher)
            with lookout.at("orders", 3):
                made.run(MESSAGES if made.whole else iter(MESSAGES))

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                await nursery.start(dispatcher.run)
                dispatcher.submit("orders", job)
                await trio.to_thread.run_sync(reached.wait, 30)
                found.extend(await lookout.look())
                release()
                dispatcher.stop()
                await dispatcher.idle()
                assert await lookout.look() == []
                nursery.cancel_scope.cancel()

    trio.run(story)
    [running] = found
    assert (running.queue, running.partition) == ("orders", 3)
    assert running.seconds > 0
    return running


def listeners(*calls: Any, form: Any = "message") -> Callable[[Dispatcher], Calls]:
    checked = [check_listener(call, form) for call in calls]
    return lambda dispatcher: Calls(checked, dispatcher.hop)


class Holds:
    """A listener that stays in its second message until it is released."""

    def __init__(self) -> None:
        self.reached, self.released = threading.Event(), threading.Event()

    def one(self, message: Message) -> None:
        if message.number == 71:
            self.reached.set()
            self._waits_for_a_lock()

    def several(self, messages: Sequence[Message]) -> None:
        self.one(messages[-1])

    async def later(self, message: Message) -> None:
        if message.number == 71:
            self.reached.set()
            await trio.to_thread.run_sync(self.released.wait, 30)

    def _waits_for_a_lock(self) -> None:
        self.released.wait(30)


@pytest.mark.parametrize(
    ("listener", "form", "message", "in_stack"),
    [
        ("one", "message", 71, "_waits_for_a_lock"),
        ("several", "batch", 70, "_waits_for_a_lock"),
        ("later", "message", 71, "await trio.to_thread.run_sync(self.released.wait, 30)"),
    ],
)
def test_the_callback_that_runs_is_told_with_its_message_and_its_stack(
    listener: str, form: str, message: int, in_stack: str
) -> None:
    holds = Holds()
    running = look_at(listeners(getattr(holds, listener), form=form), holds.reached, holds.released.set)
    assert running.name.startswith(f"Holds.{listener} (test_looking.py:")
    assert running.message == message
    assert in_stack in running.stack
    assert "dispatch.py" not in running.stack
    assert not running.moving


def test_the_second_of_several_listeners_is_the_one_that_is_told() -> None:
    holds = Holds()
    running = look_at(listeners(lambda message: None, holds.one), holds.reached, holds.released.set)
    assert running.name.startswith("Holds.one")
    assert running.message == 71


def test_a_slow_callback_is_seen_to_move(monkeypatch: pytest.MonkeyPatch) -> None:
    reached, seen, released = threading.Event(), threading.Event(), threading.Event()
    look = Lookout._message

    def looking(lookout: Lookout, thread: int) -> tuple[float, int]:
        found = look(lookout, thread)
        seen.set()
        return found

    def slow(message: Message) -> None:
        reached.set()
        (seen if message.number == 70 else released).wait(20)

    monkeypatch.setattr(Lookout, "_message", looking)

    assert look_at(listeners(slow), reached, released.set).moving
