"""Whether and how fast a subscription is delivered: what an operator changes while it runs, and the limits of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from delivery.errors import InvalidRequest
from delivery.metastore.records import Pause, SubscriptionRecord

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


def pausing(pause: Pause | None) -> Callable[[SubscriptionRecord], SubscriptionRecord]:
    """How to change the preferences of a subscription: None resumes it."""
    return lambda record: msgspec.structs.replace(record, pause=pause)


def seconds_paused(pause: Pause | None, now_ms: int) -> float | None:
    """How much longer a pause lasts: infinitely without an end, None when it is over."""
    if pause is None or (pause.until_ms is not None and pause.until_ms <= now_ms):
        return None
    return float("inf") if pause.until_ms is None else (pause.until_ms - now_ms) / 1000
