"""What a case measured, as the one line that `hoot bench` prints, for people or in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

import msgspec

_FIGURES: Final = (
    "seconds", "messages_per_second", "megabytes_per_second", "p50_ms", "p99_ms", "p999_ms", "ratio_to_floor",
    "append_us", "confirm_us", "requests_per_second", "host_mib",
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
    """This rate divided by that of `floor` in the same run."""
    partitions: int | None = None
    processes: int | None = None
    """Region hosts, each a process."""
    append_us: float | None = None
    """`fencing` only: the median of an append to the log, in microseconds."""
    unconfirmed_us: float | None = None
    """What it would be without looking whether the epoch still stands."""
    confirm_us: float | None = None
    """The median of that look: the difference of the two."""
    requests_per_second: float | None = None
    """`http-publish` only."""
    host_mib: float | None = None
    """`http-wait` only: what the host's memory grew by."""


class Summary(msgspec.Struct, kw_only=True):
    """Several runs of one case: the medians, and the lowest and highest of what the case is about."""

    case: str
    runs: int
    median: Result
    messages_per_second_min: float
    messages_per_second_max: float
    confirm_us_min: float | None = None
    confirm_us_max: float | None = None


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


def with_fencing(found: Result, append_us: float, confirm_us: float) -> Result:
    """The result with what an append takes, the look at the epoch included, and what that look takes."""
    return msgspec.structs.replace(
        found, append_us=round(append_us, 3), unconfirmed_us=round(append_us - confirm_us, 3),
        confirm_us=round(confirm_us, 3),
    )  # fmt: skip


def summary(results: Sequence[Result]) -> Summary:
    """The medians over the runs, field by field."""
    rates = [one.messages_per_second for one in results]
    looks = [one.confirm_us for one in results if one.confirm_us is not None]
    fields = {}
    for field in _FIGURES:
        values = [value for one in results if (value := getattr(one, field)) is not None]
        fields[field] = round(median(values), 4) if values else None
    middle = msgspec.structs.replace(results[0], **fields)
    if middle.append_us is not None and middle.confirm_us is not None:
        middle = with_fencing(middle, middle.append_us, middle.confirm_us)
    return Summary(
        case=results[0].case, runs=len(results), median=middle,
        messages_per_second_min=min(rates), messages_per_second_max=max(rates),
        confirm_us_min=min(looks, default=None), confirm_us_max=max(looks, default=None),
    )  # fmt: skip


def described(found: Result | Summary) -> str:
    """One line for people."""
    if isinstance(found, Result):
        if found.host_mib is not None:
            return _waiting(found)
        return _fencing(found) if found.confirm_us is not None else _rate(found)
    if found.confirm_us_min is not None:
        spread = f"lowest look {found.confirm_us_min:.3f}, highest {found.confirm_us_max:.3f}"
    else:
        spread = f"lowest {found.messages_per_second_min:,.0f}, highest {found.messages_per_second_max:,.0f}"
    return f"median of {found.runs}: {described(found.median)} ({spread})"


def _rate(found: Result) -> str:
    text = f"{found.case} {found.size} B: {found.messages_per_second:,.0f} messages/s"
    text += f", {found.megabytes_per_second:,.1f} MB/s"
    if found.requests_per_second is not None:
        text += f", {found.requests_per_second:,.0f} requests/s"
    if found.p50_ms is not None:
        text += f", p50 {found.p50_ms} ms, p99 {found.p99_ms} ms, p99.9 {found.p999_ms} ms"
    if found.ratio_to_floor is not None:
        text += f", {found.ratio_to_floor} of the floor"
    over = [f"{found.messages:,} messages", found.durability or "no disk"]
    over += [
        f"{number} {word}{'' if number == 1 else ending}"
        for number, word, ending in ((found.partitions, "partition", "s"), (found.processes, "process", "es"))
        if number is not None
    ]
    return f"{text} ({', '.join(over)})"


def _waiting(found: Result) -> str:
    return f"{found.case}: {found.messages:,} polls that wait take {found.host_mib:.1f} MiB of the host's memory"


def _fencing(found: Result) -> str:
    return (
        f"{found.case} {found.size} B: an append takes {found.append_us:.3f} µs, {found.unconfirmed_us:.3f} µs without"
        f" confirming the epoch: {found.confirm_us:.3f} µs more ({found.messages:,} appends, {found.durability})"
    )
