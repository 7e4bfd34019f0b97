"""Whether and how fast a subscription is delivered: what an operator changes while it runs, and the limits of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from delivery.errors import InvalidRequest
from delivery.filters import KEEP, Keep


class Pause(msgspec.Struct, frozen=True):
    """Nothing is delivered meanwhile."""

    since_ms: int
    until_ms: int | None = None
    """When it ends by itself, by the hosts' clocks; None: when somebody resumes it."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Kept with the subscription, until somebody changes it. 0 stands for no limit."""

    messages_per_second: float = 0.0
    """Delivered to it, all partitions together; what comes again counts again."""
    bytes_per_second: float = 0.0
    """The same in bytes of record batches, which hold some 40 bytes beside the bodies, and a few for each message."""
    window_messages: int = 0
    """Out with the subscriber and not acknowledged, in each partition: the most that a fault can deliver twice. Without
    a limit as many as it handles in about a second, and never more than the host allows; a push is one message at
    least."""
    window_bytes: int = 0
    """The same in bytes of record batches; without a limit what the host allows."""


FlowGiven = Flow | Mapping[str, float] | Keep
"""All of it, or some of its fields by name: the others stay."""

_RANGES: Final[dict[str, tuple[float, float]]] = {
    "messages_per_second": (0.01, 1e9),
    "bytes_per_second": (1, 1e12),
    "window_messages": (1, 10_000_000),
    "window_bytes": (1, 1 << 30),
}
_WHOLE: Final = ("window_messages", "window_bytes")

PAUSE_SECONDS_MAX: Final = 10 * 366 * 86_400.0
"""Of a pause with an end; one without an end says so."""


def check_pause(until: datetime | None, seconds: float | None, now_ms: int) -> Pause:
    """The pause that is asked for: until a time, for so many seconds, or until somebody resumes it.

    A time without a zone is local. Raises InvalidRequest for both at once, and for an end that is not in the future.
    """
    given: object = seconds
    if until is not None and given is not None:
        raise InvalidRequest("a pause ends at a time, or after some seconds: give one of them")
    if until is None and given is None:
        return Pause(now_ms)
    if until is not None:
        left = (until.astimezone(UTC) - datetime.fromtimestamp(0, UTC)) / timedelta(milliseconds=1) - now_ms
    elif isinstance(given, int | float) and not isinstance(given, bool):
        left = given * 1000
    else:
        raise InvalidRequest(f"a pause takes seconds, not {str(given)[:40]!r}")
    if not 0 < left <= PAUSE_SECONDS_MAX * 1000:
        raise InvalidRequest("a pause must end in the future, within ten years; without an end it lasts until a resume")
    return Pause(now_ms, now_ms + max(1, round(left)))


def seconds_paused(pause: Pause | None, now_ms: int) -> float | None:
    """How much longer a pause lasts: infinitely without an end, None when it is over."""
    if pause is None or (pause.until_ms is not None and pause.until_ms <= now_ms):
        return None
    return float("inf") if pause.until_ms is None else (pause.until_ms - now_ms) / 1000


def lasting(pause: Pause | None, now_ms: int) -> Pause | None:
    """The pause, unless it is over."""
    return None if seconds_paused(pause, now_ms) is None else pause


def changed_flow(given: FlowGiven, present: Flow) -> Flow:
    """What is asked for, of what is there. Raises InvalidRequest naming all that cannot be."""
    if given is KEEP:
        return present
    wanted = given
    if isinstance(given, Mapping):
        if unknown := sorted(set(map(str, given)) - set(Flow.__struct_fields__)):
            raise InvalidRequest(f"flow has no {unknown[0][:40]!r}: it has {', '.join(Flow.__struct_fields__)}")
        wanted = msgspec.structs.replace(present, **given)
    if not isinstance(wanted, Flow):
        raise InvalidRequest(f"flow must be a Flow, or a dict of its fields, not {str(given)[:60]}")
    if wrong := wrong_in_flow(wanted):
        raise InvalidRequest(wrong)
    return wanted


def wrong_in_flow(flow: Flow) -> str:
    """What of it cannot be used, empty when all can."""
    return "; ".join(
        f"{name} must be {low:g} to {high:g}, or 0 for none, not {str(value)[:40]}"
        for name, (low, high) in _RANGES.items()
        if not _within(value := getattr(flow, name), low, high, whole=name in _WHOLE)
    )


def _within(value: object, low: float, high: float, *, whole: bool) -> bool:
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    return number and (value == 0 or low <= value <= high)  # type: ignore[operator]
