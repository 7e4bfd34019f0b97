"""What calls the listeners of a subscription, when several threads of it ask for that at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import subscriber.attachment
from delivery.filters import KEEP
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.request import check_request
from delivery.model import Message
from subscriber.attachment import Attachment
from subscriber.listeners import Calls, check_listener
from subscriber.subscription import Subscription
from tests.unit.listening import MESSAGES, hop

SECONDS = 30.0
LINES = 20
"""More than the method in question has."""
DISPATCHER: Any = SimpleNamespace(hop=hop, clock=lambda: 0.0)


class Halted(threading.Thread):
    """Asks for the calls, and halts before a line of that until it may go on."""

    def __init__(self, attachment: Attachment, line: int) -> None:
        super().__init__()
        self._attachment, self._left = attachment, line
        self.there, self.go = threading.Event(), threading.Event()

    def run(self) -> None:
        sys.settrace(self._trace)
        self._attachment.calls(DISPATCHER)
        self.there.set()

    def _trace(self, frame: FrameType, what: str, _: object) -> Callable[..., Any] | None:
        if frame.f_code is not Attachment.calls.__code__:
            return None
        self._left -= what == "line"
        if self._left == 0:
            self.there.set()
            assert self.go.wait(SECONDS)
        return self._trace


@pytest.mark.parametrize("line", range(1, LINES))
def test_a_listener_that_is_added_is_called_however_the_threads_meet(
    monkeypatch: pytest.MonkeyPatch, line: int
) -> None:
    heard: list[str] = []

    def first(_: Message) -> None:
        heard.append("first")

    def second(_: Message) -> None:
        heard.append("second")

    request = check_request("orders", None, KEEP, "earliest")
    subscription = Subscription("mail", request, (check_listener(first, "message"),))
    record = SubscriptionRecord(
        name="mail", queue="orders", generation="g", created_ms=1, starts={0: 0}, all_partitions=True, topics=()
    )
    attachment = Attachment(subscription, record, ListenerRecord(address="127.0.0.1", port=1, token="t"))
    later = Halted(attachment, line)

    def make(*args: Any) -> Calls:
        """The thread that asked first is this far with the one listener when the other is added."""
        monkeypatch.setattr(subscriber.attachment, "Calls", Calls)
        subscription.listener(second)
        later.start()
        assert later.there.wait(SECONDS)
        return Calls(*args)

    monkeypatch.setattr(subscriber.attachment, "Calls", make)
    attachment.calls(DISPATCHER)
    later.go.set()
    later.join(SECONDS)
    attachment.calls(DISPATCHER).run(MESSAGES[:1])
    assert heard == ["first", "second"]
