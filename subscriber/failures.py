"""What was not handled, as it is answered."""

from __future__ import annotations

from collections.abc import Sequence

from subscriber.holding import HELD, RAISED, REJECTED, RETRY, UNREADABLE, Holding, Unhandled
from subscriber.listeners import ListenerFailed
from subscriber.outcomes import Reject, Retry
from subscriber.pushes import Push, batches, last_id_of

_ERROR_TEXT_MAX = 1000


def described(error: BaseException) -> str:
    """Its type and text."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an application's exception may fail to describe itself
        text = type(error).__name__
    return text[:_ERROR_TEXT_MAX]


def by_listener(failed: ListenerFailed) -> Unhandled:
    """What a listener did not handle."""
    return unhandled(failed.first, failed.message.key, failed.__cause__ or failed, failed.last)


def unhandled(number: int, key: bytes | None, error: BaseException, last: int = 0) -> Unhandled:
    """A message that was not handled because of `error`, with others up to `last`."""
    kind, after_ms = RAISED, None
    if isinstance(error, Retry):
        kind, after_ms = RETRY, error.after_ms
    elif isinstance(error, Reject):
        kind = REJECTED
    return Unhandled(number, key, kind, after_ms, described(error), last)


def unreadable(position: int, error: BaseException) -> Unhandled:
    """What is behind `position` cannot be read."""
    return Unhandled(position + 1, None, UNREADABLE, error=described(error))


def unforeseen(push: Push, handled: int, error: BaseException) -> Unhandled:
    """Something else than a listener failed over a push, of which everything up to `handled` was handled.

    It counts as if a listener had raised it for all of the rest: the host delivers that again, one by one where it has
    to know which message is at fault.
    """
    try:
        first = next(message for _, messages in batches(push, handled) for message in messages)
    except Exception:  # noqa: BLE001 - nothing is there that can be read
        return unreadable(handled, error)
    return Unhandled(first.number, first.key, RAISED, error=described(error), last=last_id_of(push))


def unforeseen_again(push: Push, holding: Holding, error: BaseException) -> Sequence[Unhandled]:
    """As `unforeseen`, of a push of parked messages: each that is not settled, the first as the one that failed."""
    messages = (message for _, part in batches(push, -1) for message in part)
    unsettled = [message for message in messages if holding.is_unsettled(message.number)]
    return [
        Unhandled(one.number, one.key, HELD if one is not unsettled[0] else RAISED, error=described(error))
        for one in unsettled
    ]
