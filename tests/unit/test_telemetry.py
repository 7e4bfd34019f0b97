"""OpenTelemetry with the SDK's own exporters in memory: what is told where, and nothing where no SDK is configured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from delivery.batch import Row
from delivery.client.outgoing import NewMessage, Outgoing
from delivery.errors import QueueClosed
from delivery.model import Message, decode_headers, encode_headers
from delivery.telemetry import Telemetry, configured
from delivery.testing import Engine
from subscriber.listeners import Calls, ListenerFailed, check_listener
from subscriber.outcomes import Retry
from subscriber.tracing import traced
from tests.integration.embedded import ROOT

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = encode_headers({"traceparent": f"00-{TRACE}-{PARENT}-01".encode(), "tenant": b"7"})


class Sdk:
    """A configured SDK, and what it was told."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data = self._reader.get_metrics_data()
        found = [] if data is None else [scope for one in data.resource_metrics for scope in one.scope_metrics]
        return [point for scope in found for one in scope.metrics if one.name == name for point in one.data.data_points]


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sdk]:
    """Configured for one test; the global providers can be set only once in a process."""
    made = Sdk()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made.tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: made.meters)
    monkeypatch.setattr(trace, "get_tracer", made.tracers.get_tracer)
    monkeypatch.setattr(metrics, "get_meter", made.meters.get_meter)
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def message(number: int, header_block: bytes = b"") -> Message:
    return Message(number << 15, b"body", "", None, 2, "orders", header_block)


def calls(sdk: Sdk, *listeners: Any, form: Any = "message", hop: Any = None) -> Calls:
    telemetry = configured()
    assert telemetry is not None
    return Calls(traced(telemetry, "billing", [check_listener(one, form) for one in listeners]), hop)


def headers_of(row: Row) -> dict[str, bytes]:
    return decode_headers(row[3]) if row[3] else {}


def test_the_context_goes_into_the_headers_while_a_span_records_and_not_otherwise(sdk: Sdk) -> None:
    outgoing = Outgoing("orders", 1, 1000, lambda: 1000)
    assert headers_of(outgoing.row(b"x", None, "", {"a": b"1"})[0]) == {"a": b"1"}
    with sdk.tracers.get_tracer("app").start_as_current_span("order") as span:
        context = span.get_span_context()
        expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()
        assert headers_of(outgoing.row(b"x", None, "", {"a": b"1"})[0]) == {"a": b"1", "traceparent": expected}
        assert headers_of(outgoing.row_of(b"x")[0]) == {"traceparent": expected}
        own = {"traceparent": b"the application's own"}
        assert headers_of(outgoing.row_of(NewMessage(b"x", headers=own))[0]) == own
    assert sdk.points("messaging.client.sent.messages") == [], "nothing was sent"


def test_what_is_published_is_counted_and_timed_when_it_is_stored_or_not(sdk: Sdk) -> None:
    with Engine() as hoot:
        client = hoot.connect()
        queue = client.create_queue("orders")
        queue.put_many([b"1", b"2"])
        client.update_queue("orders", closed=True)
        with pytest.raises(QueueClosed):
            queue.put(b"3")
    sent, refused = sdk.points("messaging.client.sent.messages")
    assert (sent.value, refused.value, refused.attributes["error.type"]) == (2, 1, "QueueClosed")
    assert dict(sent.attributes) == {
        "messaging.system": "hoot", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
    }  # fmt: skip
    timed = sdk.points("messaging.client.operation.duration")
    assert [(one.count, one.attributes) for one in timed] == [(1, sent.attributes), (1, refused.attributes)]


def test_a_callback_is_a_span_behind_what_published_its_message(sdk: Sdk) -> None:
    current: list[int] = []
    calls(sdk, lambda _: current.append(trace.get_current_span().get_span_context().span_id)).run(
        [message(70, CONTEXT)]
    )
    [span] = sdk.spans()
    assert (span.name, span.kind) == ("process orders", SpanKind.CONSUMER)
    assert span.context is not None
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert current == [span.context.span_id]
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "messaging.system": "hoot", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "orders", "messaging.destination.subscription.name": "billing",
        "messaging.consumer.group.name": "billing", "messaging.destination.partition.id": "2",
        "messaging.message.id": "70-0", "messaging.message.body.size": 4,
    }  # fmt: skip


def test_a_list_is_one_span_that_is_linked_to_each_context(sdk: Sdk) -> None:
    calls(sdk, lambda messages: None, form="batch").run([message(70, CONTEXT), message(71), message(72, CONTEXT)])
    [span] = sdk.spans()
    assert span.parent is None
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACE, TRACE]
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3


def test_what_a_callback_raises_or_returns_is_on_its_span_and_ends_the_push_as_ever(sdk: Sdk) -> None:
    def fails(_: Message) -> None:
        raise ValueError("no")

    for listener, kind in ((fails, "ValueError"), (lambda _: Retry(after=1), "Retry")):
        with pytest.raises(ListenerFailed) as caught:
            calls(sdk, listener).run([message(70)])
        assert type(caught.value.__cause__).__name__ == kind
        span = sdk.spans()[-1]
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes is not None
        assert span.attributes["error.type"] == kind
    points = sdk.points("messaging.process.duration")
    assert {point.attributes.get("error.type"): point.count for point in points} == {"ValueError": 1, "Retry": 1}
    assert "messaging.message.id" not in points[0].attributes


def test_an_async_callback_is_a_span_too(sdk: Sdk) -> None:
    async def later(_: Message) -> None:
        await trio.lowlevel.checkpoint()

    calls(sdk, later, hop=trio.run).run([message(70), message(71)])
    assert [span.name for span in sdk.spans()] == ["process orders"] * 2
    assert sum(point.value for point in sdk.points("messaging.client.consumed.messages")) == 2


def test_an_answer_is_a_span_of_its_own(sdk: Sdk) -> None:
    telemetry = configured()
    assert telemetry is not None
    telemetry.settle("orders", "billing", 2, acknowledged=True)
    telemetry.settle("orders", "billing", 2, acknowledged=False)
    assert [(span.name, span.kind) for span in sdk.spans()] == [
        ("ack orders", SpanKind.CLIENT), ("nack orders", SpanKind.CLIENT)
    ]  # fmt: skip
    settled = sdk.points("messaging.client.operation.duration")
    assert [one.attributes["messaging.operation.name"] for one in settled] == ["ack", "nack"]
    assert "messaging.destination.partition.id" not in settled[0].attributes


def test_without_an_sdk_nothing_is_wrapped_and_nothing_imported() -> None:
    assert configured() is None  # the API alone is loaded here, as a library may do
    assert Outgoing("orders", 1, 1000, lambda: 1000).carry is None
    asked = "import sys; import delivery, subscriber; from delivery.telemetry import configured; "
    asked += "assert configured() is None; assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", asked], check=True, cwd=ROOT, timeout=60)


def test_what_is_configured_for_metrics_alone_counts(sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    assert isinstance(configured(), Telemetry)
