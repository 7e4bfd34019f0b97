"""Calling listeners with `order="key"`: behind a message that was not handled the other keys go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from delivery.model import Message
from subscriber.holding import HELD, Holding, Unhandled
from subscriber.listeners import Calls, ListenerFailed

Note = Callable[[ListenerFailed], Unhandled]
"""Tells everybody of a failure, and gives it as it is answered."""


def call_by_key(calls: Calls, holding: Holding, messages: Iterable[Message], note: Note) -> None:
    """Call listeners with `messages`; what is not handled, and what follows it of its key, is held.

    Raises ListenerFailed for what must end the run: nothing more may be held, or the subscriber is to end.
    """
    if calls.takes_lists:
        _call_lists(calls, holding, list(holding.free(messages)), note)
        return
    rest = iter(messages)
    while True:
        try:
            calls.run_each(holding.free(rest) if holding else rest)
        except ListenerFailed as failed:
            _hold(holding, failed, note)
        else:
            return


def _call_lists(calls: Calls, holding: Holding, messages: list[Message], note: Note) -> None:
    """A list that fails is given again message by message, at once: only so is it known which of its keys must wait."""
    while messages and (failed := _failure(calls, messages)) is not None:
        behind = [message for message in messages if message.number > failed.handled]
        if failed.last > failed.first:
            _note_list(failed, note)
            _call_singly(calls, holding, behind, note)
            return
        _hold(holding, failed, note)
        messages = list(holding.free(behind[1:]))


def _call_singly(calls: Calls, holding: Holding, messages: Iterable[Message], note: Note) -> None:
    for message in holding.free(messages):
        if (failed := _failure(calls, [message])) is not None:
            _hold(holding, failed, note)


def _failure(calls: Calls, messages: list[Message]) -> ListenerFailed | None:
    try:
        calls.run(messages)
    except ListenerFailed as failed:
        return failed
    return None


def _note_list(failed: ListenerFailed, note: Note) -> None:
    """Tell of a list that was not handled. Raises it when the subscriber is to end."""
    if not isinstance(failed.__cause__, Exception):
        raise failed
    note(failed)


def _hold(holding: Holding, failed: ListenerFailed, note: Note) -> None:
    """Hold a message that was not handled. Raises it for what must end the run."""
    if holding.is_full or not isinstance(failed.__cause__, Exception):
        raise failed
    holding.hold(note(failed))


def call_again(calls: Calls, holding: Holding, messages: Iterable[Message], note: Note) -> list[Unhandled]:
    """Call listeners with the messages that are held still; gives those that were not handled again."""
    failures: list[Unhandled] = []
    for message in messages:
        if not holding.is_unsettled(message.number):
            continue  # it was handled, and the answer was lost
        if not holding.is_next(message):
            failures.append(Unhandled(message.number, message.key, HELD))
            continue
        try:
            calls.run([message])
        except ListenerFailed as failed:
            holding.hold(one := note(failed))
            failures.append(one)
        else:
            holding.settle(message.number)
    return failures
