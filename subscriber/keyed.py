"""Calling listeners with `order="key"`: behind a message that was not handled the other keys go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from delivery.model import Message
from subscriber.holding import HELD, Holding, Unhandled
from subscriber.listeners import Calls, ListenerFailed

Note = Callable[[ListenerFailed], Unhandled]
"""Tells everybody of a failure, and gives it as it is answered."""


def call_by_key(calls: Calls, holding: Holding, messages: Iterable[Message], note: Note) -> None:
    """Call message listeners with `messages`; what is not handled, and what follows it of its key, is held.

    Raises ListenerFailed for what must end the run: nothing more may be held, or the subscriber is to end.
    """
    rest = iter(messages)
    while True:
        try:
            calls.run_each(holding.free(rest) if holding else rest)
        except ListenerFailed as failed:
            if holding.is_full or not isinstance(failed.__cause__, Exception):
                raise
            holding.hold(note(failed))
        else:
            return


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
