"""OpenTelemetry, when the application has configured its SDK: the context in headers, spans of callbacks, metrics.

Names and attributes are those of the semantic conventions for messaging. Nobody who has not configured the SDK pays for
it: `configured` is asked once, when a queue is opened or a subscription attached, and never imports anything.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from delivery.model import Message, tolerant_headers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link

Attributes = dict[str, str | int]
Published = Callable[[int, float, BaseException | None], None]
"""To be told of a batch: its messages, the seconds from the first `put` to the outcome, why none of it is stored."""
CONTEXT: Final = ("traceparent", "tracestate")
"""The headers that carry a context, by the W3C."""
SYSTEM: Final = "hoot"

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def configured() -> Telemetry | None:
    """OpenTelemetry, if the application has set up an SDK for traces or metrics; None without one."""
    if "opentelemetry.trace" not in sys.modules and "opentelemetry.metrics" not in sys.modules:
        return None
    from opentelemetry import metrics, trace

    providers = ((trace.get_tracer_provider(), "trace"), (metrics.get_meter_provider(), "metrics"))
    # The API's own providers do nothing; whatever else there is comes from an SDK.
    real = [one for one, name in providers if not type(one).__module__.startswith(f"opentelemetry.{name}")]
    return Telemetry() if real else None


class Telemetry:
    """Over the SDK's global providers. Thread-safe."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        meter = metrics.get_meter(SYSTEM)
        self._tracer, self._propagator = trace.get_tracer(SYSTEM), TraceContextTextMapPropagator()
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Of publishing, from the put to the outcome, and of answering",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )  # fmt: skip
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages whose publishing had an outcome"
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were handed to callbacks"
        )
        self._duration = meter.create_histogram(
            "messaging.process.duration", "s", "Of callbacks", explicit_bucket_boundaries_advisory=_BUCKETS
        )

    def carry(self, headers: Mapping[str, bytes] | None) -> Mapping[str, bytes] | None:
        """The headers of a message with the current context, if a span records."""
        from opentelemetry import trace

        if not trace.get_current_span().is_recording() or (headers is not None and CONTEXT[0] in headers):
            return headers
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return {**(headers or {}), **{name: value.encode() for name, value in carrier.items()}}

    def published(self, queue: str) -> Published:
        """To be told of what was published to a queue, batch by batch."""
        attributes = {**_about(queue, "send"), "messaging.operation.type": "send"}

        def settled(messages: int, seconds: float, error: BaseException | None) -> None:
            told = attributes if error is None else {**attributes, "error.type": type(error).__qualname__}
            self._sent.add(messages, told)
            self._operations.record(seconds, told)

        return settled

    @contextmanager
    def process(self, subscription: str, messages: Sequence[Message]) -> Iterator[Callable[[BaseException], None]]:
        """A callback runs: a child of what published its message, or linked to it when it takes several.

        Gives what is to be told of an error that the callback returned; of one that it raises this hears.
        """
        from opentelemetry import trace
        from opentelemetry.trace import StatusCode

        def fail(error: BaseException) -> None:
            counted["error.type"] = kind = type(error).__qualname__
            span.set_attribute("error.type", kind)
            span.set_status(StatusCode.ERROR, str(error)[:200])

        first = messages[0]
        attributes = {**_received(first.queue, subscription, first.partition, "process"), **_size(messages)}
        counted = {name: value for name, value in attributes.items() if name not in _OF_ONE}
        single = len(messages) == 1
        parent = self._context_of(first) if single else None
        links = [] if single else [link for one in messages if (link := self._link_to(one)) is not None]
        begun = time.monotonic()
        with self._tracer.start_as_current_span(
            f"process {first.queue}", parent, trace.SpanKind.CONSUMER, attributes, links, record_exception=False,
            set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                yield fail
            except BaseException as error:
                fail(error)
                raise
            finally:
                self._duration.record(time.monotonic() - begun, counted)
                self._consumed.add(len(messages), counted)

    def settle(self, queue: str, subscription: str, partition: int, *, acknowledged: bool) -> None:
        """A push was answered, which takes no time: nobody waits for it."""
        from opentelemetry import trace

        name = "ack" if acknowledged else "nack"
        attributes = _received(queue, subscription, partition, name) | {"messaging.operation.type": "settle"}
        self._tracer.start_span(f"{name} {queue}", kind=trace.SpanKind.CLIENT, attributes=attributes).end()
        self._operations.record(0.0, {name: value for name, value in attributes.items() if name not in _OF_ONE})

    def _context_of(self, message: Message) -> Context | None:
        """Of whoever published it."""
        if not message.header_block:
            return None
        headers = tolerant_headers(message.header_block)
        carrier = {name: headers[name].decode("ascii", "replace") for name in CONTEXT if name in headers}
        return self._propagator.extract(carrier) if carrier else None

    def _link_to(self, message: Message) -> Link | None:
        from opentelemetry import trace

        context = self._context_of(message)
        found = trace.get_current_span(context).get_span_context()
        return trace.Link(found) if context is not None and found.is_valid else None


_OF_ONE: Final = frozenset({
    "messaging.message.id", "messaging.message.body.size", "messaging.batch.message_count",
    "messaging.destination.partition.id",
})  # fmt: skip
"""Attributes of spans that would give metrics too many label sets."""


def _about(queue: str, operation: str) -> Attributes:
    return {
        "messaging.system": SYSTEM, "messaging.operation.name": operation, "messaging.destination.name": queue,
    }  # fmt: skip


def _received(queue: str, subscription: str, partition: int, operation: str) -> Attributes:
    return _about(queue, operation) | {
        "messaging.operation.type": "process", "messaging.destination.subscription.name": subscription,
        "messaging.consumer.group.name": subscription, "messaging.destination.partition.id": str(partition),
    }  # fmt: skip


def _size(messages: Sequence[Message]) -> Attributes:
    if len(messages) > 1:
        return {"messaging.batch.message_count": len(messages)}
    return {
        "messaging.message.id": str(messages[0].id), "messaging.message.body.size": len(messages[0].body),
    }  # fmt: skip
