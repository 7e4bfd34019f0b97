"""Parts of sentences for those who look after subscriptions."""

from __future__ import annotations


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
