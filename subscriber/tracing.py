"""Listeners with a span around each call, for an application that has configured OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from delivery.telemetry import Telemetry
from subscriber.listeners import Registered
from subscriber.outcomes import Outcome


def traced(telemetry: Telemetry, subscription: str, listeners: Sequence[Registered]) -> tuple[Registered, ...]:
    """The listeners, each of whose calls is a span from now on."""
    return tuple(_traced(telemetry, subscription, one) for one in listeners)


def _traced(telemetry: Telemetry, subscription: str, listener: Registered) -> Registered:
    call, lists = listener.call, listener.form == "batch"

    def process(argument: Any) -> object:  # noqa: ANN401 - a message or a list of them
        with telemetry.process(subscription, argument if lists else [argument]) as fail:
            result: object = call(argument)
            if isinstance(result, Outcome):  # returned, which means what raising it does
                fail(result)
            return result

    async def process_later(argument: Any) -> object:  # noqa: ANN401 - as above
        with telemetry.process(subscription, argument if lists else [argument]) as fail:
            result: object = await call(argument)
            if isinstance(result, Outcome):
                fail(result)
            return result

    return msgspec.structs.replace(listener, call=process_later if listener.is_async else process)
