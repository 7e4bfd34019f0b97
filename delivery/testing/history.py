"""What happened to the messages of subscriptions, as the engine in a test saw it: the matter of its assertions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import msgspec

from delivery.batch import headers_in, open_batch
from delivery.dispatch.retry import Kind
from delivery.dispatch.target import STATUS_FAILED, STATUS_OK
from delivery.ids import MessageId
from delivery.model import Message

What = Literal["handled", "raised", "retry", "rejected", "unreadable"]
_WHAT: Final[dict[Kind, What]] = {
    Kind.RAISED: "raised", Kind.RETRY: "retry", Kind.REJECTED: "rejected", Kind.UNREADABLE: "unreadable"
}  # fmt: skip
RESTLESS: Final = 200
"""Failures of one message at one moment, after which it is clear that waiting for their end has none."""
_BODY_SHOWN: Final = 60


class Delivery(msgspec.Struct, frozen=True):
    """One delivery of a message to the listeners of a subscription."""

    at: float
    """Seconds since the engine began."""
    subscription: str
    message: Message
    what: What
    """`handled`; `raised`: an exception, or a timeout; `retry` and `rejected`: it said so."""
    error: str = ""
    attempt: int = 1

    def __str__(self) -> str:
        message = self.message
        body = repr(message.body if len(message.body) <= _BODY_SHOWN else message.body[:_BODY_SHOWN] + b"...")
        key = "" if message.key is None else f" key {message.key!r}"
        why = f": {self.error}" if self.error else ""
        return (
            f"{self.at:10.3f} s  {message.queue}/{message.partition} → {self.subscription}"
            f"  {MessageId(message.number)}{key} {body}  attempt {self.attempt} {self.what}{why}"
        )


class Restless(AssertionError):
    """A message is delivered again and again, without any time passing in between."""


class History:
    """All deliveries, in order."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.deliveries: list[Delivery] = []
        self._attempts: dict[tuple[str, str, int, int], int] = {}
        self._restless: tuple[tuple[str, str, int, int], float] | None = None
        self._at_once = 0

    def of(self, queue: str, subscription: str) -> list[Delivery]:
        """The deliveries to one subscription."""
        return [one for one in self.deliveries if (one.message.queue, one.subscription) == (queue, subscription)]

    def told(self, queue: str, subscription: str) -> str:
        """What happened, as text."""
        found = self.of(queue, subscription)
        if not found:
            return f"nothing was delivered from {queue!r} to subscription {subscription!r}"
        return "what happened:\n" + "\n".join(map(str, found))

    def check_restless(self) -> None:
        """Raises Restless."""
        if self._at_once >= RESTLESS:
            raise Restless(
                f"this message failed {self._at_once} times without any time passing, so nothing ever settles; a"
                f" pause of 0 seconds has no end in a test:\n{self.deliveries[-1]}"
            )

    def answered(self, push: Any, reply: Any) -> None:
        """A push was answered."""
        if reply.status not in (STATUS_OK, STATUS_FAILED):
            return
        failures = {one.id: one for one in reply.failures or ()}
        failed = None
        for message in _messages(push):
            failed = failures.get(message.number) or (failed if failed and message.number <= failed.last else None)
            if failed is not None and failed.kind != Kind.HELD:
                self._add(push.subscription, message, _WHAT[Kind(failed.kind)], failed.error or "")
            elif failed is None and (push.again or message.number <= reply.position):
                self._add(push.subscription, message, "handled")

    def _add(self, subscription: str, message: Message, what: What, error: str = "") -> None:
        place = (message.queue, subscription, message.partition, message.number)
        attempt = self._attempts[place] = self._attempts.get(place, 0) + 1
        if what == "handled":
            del self._attempts[place]
        now = self._now()
        self._at_once = self._at_once + 1 if what != "handled" and self._restless == (place, now) else 0
        self._restless = (place, now)
        self.deliveries.append(Delivery(now, subscription, message, what, error, attempt))


def _messages(push: Any) -> Iterator[Message]:
    after = -1 if push.again else push.after
    for at, header in headers_in(push.batches):
        yield from open_batch(push.batches[at : at + header.length], header).messages(push.queue, after)
