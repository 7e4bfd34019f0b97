"""What a case measured, as the one JSON line that `hoot bench` prints."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

import msgspec

_FIGURES: Final = (
    "seconds", "messages_per_second", "megabytes_per_second", "p50_ms", "p99_ms", "p999_ms", "ratio_to_floor",
)  # fmt: skip


class Result(msgspec.Struct, kw_only=True):
    """One run of one case; None where a figure does not apply."""

    case: str
    size: int
    messages: int
    seconds: float
    messages_per_second: float
    megabytes_per_second: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    durability: str | None = None
    ratio_to_floor: float | None = None
    """`live` only: this rate divided by that of `floor` in the same run."""


class Summary(msgspec.Struct, kw_only=True):
    """Several runs of one case: the medians, and the lowest and highest rate."""

    case: str
    runs: int
    median: Result
    messages_per_second_min: float
    messages_per_second_max: float


def result(case: str, size: int, messages: int, seconds: float, durability: str | None = None) -> Result:
    """A rate, from how many messages of `size` bytes took how long."""
    return Result(
        case=case, size=size, messages=messages, seconds=round(seconds, 4),
        messages_per_second=round(messages / seconds, 1),
        megabytes_per_second=round(messages * size / seconds / 1e6, 2), durability=durability,
    )  # fmt: skip


def with_latencies(found: Result, nanoseconds: Sequence[int]) -> Result:
    """The result with the percentiles of what each message took."""
    ordered = sorted(nanoseconds)

    def percentile(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6, 3)

    return msgspec.structs.replace(found, p50_ms=percentile(0.5), p99_ms=percentile(0.99), p999_ms=percentile(0.999))


def summary(results: Sequence[Result]) -> Summary:
    """The medians over the runs, field by field."""
    rates = [one.messages_per_second for one in results]
    fields = {}
    for field in _FIGURES:
        values = [value for one in results if (value := getattr(one, field)) is not None]
        fields[field] = round(median(values), 4) if values else None
    middle = msgspec.structs.replace(results[0], **fields)
    return Summary(
        case=results[0].case, runs=len(results), median=middle,
        messages_per_second_min=min(rates), messages_per_second_max=max(rates),
    )  # fmt: skip
