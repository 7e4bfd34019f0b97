"""Parts of sentences for those who look after subscriptions."""

from __future__ import annotations

from delivery.dispatch.observation import Observation


def why(text: str) -> str:
    """The reason in brackets, if there is one."""
    return f" ({text})" if text else ""


def times(count: int) -> str:
    """`once`, `3 times`."""
    return "once" if count == 1 else f"{count} times"


def span(seconds: float) -> str:
    """A length of time in the unit that people would take; nothing is shorter than 0."""
    whole = round(max(seconds, 0))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"


def shrinks(seen: Observation) -> bool:
    """Whether it catches up."""
    return seen.trend is not None and seen.trend < 0


def whole(seen: Observation, text: str) -> str:
    """A reason, with whose it is where several share the partition, and whether publishers feel it."""
    held = f"publishers wait for it: {text}" if seen.holding else text
    return f"member {seen.member}: {held}" if seen.member else held


def age(seen: Observation) -> str:
    """How far it is behind, if that is known, and whether that gets better."""
    if not seen.oldest_ms:
        return ""
    trend = "" if seen.trend is None else f", which {'shrinks' if shrinks(seen) else 'grows'}"
    return f", {span(seen.lag_seconds)} behind{trend}"
