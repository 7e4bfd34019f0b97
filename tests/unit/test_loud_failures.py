"""What fails beside the listeners of a subscriber stalls nothing in silence: it counts as a failure, or ends `run`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from delivery.testing import Engine
from subscriber import Event, Message, RetryPolicy, Subscriber
from subscriber.service import ListenerService

QUICK = RetryPolicy(first_seconds=1, factor=1, jitter=0)


@pytest.fixture
def hoot() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


class Broken(logging.Handler):
    """Raises for what the subscriber logs, as often as it is told to."""

    def __init__(self, error: BaseException, times: int) -> None:
        super().__init__()
        self._error, self.times = error, times

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("subscriber") and record.levelno > logging.INFO and self.times:
            self.times -= 1
            raise self._error


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class Flaky:
    """A listener that fails once for each of some bodies, and what it has handled."""

    def __init__(self, *failing: bytes) -> None:
        self.failing, self.handled = list(failing), list[bytes]()

    def __call__(self, message: Message) -> None:
        if message.body in self.failing:
            self.failing.remove(message.body)
            raise ValueError("not yet")
        self.handled.append(message.body)


def subscribed(hoot: Engine, listener: Callable[[Message], object], **options: Any) -> Subscriber:
    queue = hoot.connect().create_queue("orders")
    for body in (b"1", b"2", b"3"):
        queue.put(body, key=body)
    subscriber = hoot.subscriber("mail")
    subscriber.subscribe("orders", start="earliest", listener=listener, **{"retry": QUICK, **options})
    return subscriber


WAYS = [{}, {"retry": RetryPolicy(first_seconds=1, factor=1, jitter=0, order="key")}, {"manual": True}]


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("times", [1, 100])
def test_a_log_that_raises_while_a_failed_callback_is_told_of_costs_nothing(
    hoot: Engine, options: dict[str, Any], times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = Flaky(b"2")

    def handle(message: Any) -> None:
        listener(message)
        if options.get("manual"):
            message.ack()

    subscriber = subscribed(hoot, handle, **options)
    broken = Broken(OSError("the log's disk is full"), times)
    with logging_to(broken):
        subscriber.start()
        hoot.advance(5)
    assert broken.times < times
    assert sorted(listener.handled) == [b"1", b"2", b"3"]
    assert [one.attempt for one in hoot.retried("orders", "mail")] == [1]
    assert subscriber.counters.failed == 1
    assert "the log's disk is full" in capsys.readouterr().err
    hoot.assert_idle("orders", "mail")


def test_a_log_that_ends_the_program_is_raised_by_run_and_the_message_comes_again(hoot: Engine) -> None:
    listener = Flaky(b"2")
    subscriber = subscribed(hoot, listener)
    with logging_to(Broken(SystemExit("no log, no service"), 100)), pytest.raises(SystemExit, match="no log"):
        subscriber.run()
    assert listener.handled == [b"1"]
    again = hoot.subscriber("mail")
    again.subscribe("orders", listener=listener)
    with again:
        hoot.advance(5)
    assert listener.handled == [b"1", b"2", b"3"]


def test_a_callback_for_events_that_ends_the_program_is_raised_by_run(hoot: Engine) -> None:
    subscriber = subscribed(hoot, Flaky(b"2"))

    @subscriber.on_event
    def on_event(event: Event) -> None:
        if event.kind == "failed":
            raise SystemExit(3)

    with pytest.raises(SystemExit):
        subscriber.run()


class Untraceable:
    """A configured OpenTelemetry whose exporter fails."""

    def settle(self, *_: object, **__: object) -> None:
        raise ValueError("nobody listens at the collector")

    @contextmanager
    def process(self, *_: object) -> Iterator[Callable[[BaseException], None]]:
        yield lambda _: None


def test_a_message_that_was_handled_and_cannot_be_traced_was_handled(
    hoot: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subscriber.attachment.configured", Untraceable)
    listener = Flaky()
    with subscribed(hoot, listener):
        hoot.advance(5)
    assert listener.handled == [b"1", b"2", b"3"]


@pytest.mark.parametrize("order", ["partition", "key"])
def test_a_defect_counts_as_a_failure_and_what_it_met_comes_again(
    hoot: Engine, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Planted where a push has been handled and its answer is about to be made."""
    count, defects = ListenerService.count, [KeyError("planted"), KeyError("planted")]

    def count_badly(service: ListenerService, field: str) -> None:
        if field == "pushes" and defects:
            raise defects.pop()
        count(service, field)

    monkeypatch.setattr(ListenerService, "count", count_badly)
    listener, events = Flaky(), list[Event]()
    subscriber = subscribed(
        hoot,
        listener,
        retry=RetryPolicy(first_seconds=1, factor=1, jitter=0, order=order),  # type: ignore[arg-type]
    )
    subscriber.on_event(events.append)
    with subscriber:
        hoot.advance(10)
        hoot.assert_idle("orders", "mail")
    assert set(listener.handled) == {b"1", b"2", b"3"}
    assert any(isinstance(event.error, KeyError) for event in events)
