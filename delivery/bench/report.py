"""What a case measured, as the one line that `hoot bench` prints, for people or in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

import msgspec


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
    raw_per_second: float | None = None
    """HBase only: rows of that size that happybase by itself puts, or scans for a drain, in the same run."""
    ratio_to_raw: float | None = None
    """This rate divided by that."""
    ratio_to_all: float | None = None
    """`scan` only: this rate divided by that of reading every topic."""
    partitions: int | None = None
    processes: int | None = None
    """Region hosts, each a process."""
    append_us: float | None = None
    """`fencing` only: the median of an append to the log, in microseconds."""
    unconfirmed_us: float | None = None
    """What it would be without looking whether the epoch still stands."""
    confirm_us: float | None = None
    """The median of that look: the difference of the two."""
    members: int | None = None
    """`groups` only, before one more comes and goes."""
    joined_pause_ms: float | None = None
    """The longest silence of a partition that went to the new member."""
    left_pause_ms: float | None = None
    """The longest silence of a partition that the leaving member had."""
    redelivered: int | None = None
    """`retry-storm` only: messages that came again."""
    all_seconds: float | None = None
    """Until those were handled, too."""
    alone_p99_ms: float | None = None
    """`slow-neighbour` only: without the neighbour."""
    ratio_to_alone: float | None = None
    """The p99 with the neighbour, divided by that."""
    requests_per_second: float | None = None
    """`http-publish` only."""
    connections: int | None = None
    """Over HTTP."""
    subscriptions: int | None = None
    processor_percent: float | None = None
    """`idle` only: of one processor, by the host."""
    alone_mib: int | None = None
    """Resident memory of the hosts before the neighbour, the idle subscriptions or the polls that wait came."""
    host_mib: int | None = None
    """And with them, at most."""


_TOLD: Final = (
    ("requests_per_second", "{:,.0f} requests/s"),
    ("p50_ms", "p50 {} ms"), ("p99_ms", "p99 {} ms"), ("p999_ms", "p99.9 {} ms"),
    ("alone_p99_ms", "p99 alone {} ms"), ("ratio_to_alone", "{} times that"),
    ("joined_pause_ms", "pause {} ms when a member came"), ("left_pause_ms", "{} ms when it went"),
    ("redelivered", "{:,} came again"), ("all_seconds", "all handled after {} s"),
    ("processor_percent", "{} % of a processor while idle"), ("host_mib", "host {} MiB"),
    ("alone_mib", "{} MiB before"),
    ("ratio_to_all", "{} times that of reading every topic"),
    ("ratio_to_floor", "{} of the floor"), ("ratio_to_raw", "{} of happybase's"), ("raw_per_second", "{:,.0f} rows/s"),
)  # fmt: skip
"""The figures of a case besides its rates, in the order of the line."""

_OVER: Final = (
    ("partitions", "{:,} partition{s}"), ("processes", "{:,} process{es}"), ("members", "{:,} member{s}"),
    ("subscriptions", "{:,} subscription{s}"), ("connections", "{:,} connection{s}"),
)  # fmt: skip

_FIGURES: Final = (
    "seconds", "messages_per_second", "megabytes_per_second", "append_us", "confirm_us", *(name for name, _ in _TOLD)
)  # fmt: skip
"""Of which a summary tells the medians."""


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


def percentile_ms(ordered: Sequence[int], share: float) -> float:
    """Of nanoseconds in rising order."""
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6, 3)


def with_latencies(found: Result, nanoseconds: Sequence[int]) -> Result:
    """The result with the percentiles of what each message took."""
    ordered = sorted(nanoseconds)
    return msgspec.structs.replace(
        found, p50_ms=percentile_ms(ordered, 0.5), p99_ms=percentile_ms(ordered, 0.99),
        p999_ms=percentile_ms(ordered, 0.999),
    )  # fmt: skip


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
        middle = median(values) if values else None
        fields[field] = middle if middle is None or isinstance(middle, int) else round(middle, 4)
    middle_run = msgspec.structs.replace(results[0], **fields)
    if middle_run.append_us is not None and middle_run.confirm_us is not None:
        middle_run = with_fencing(middle_run, middle_run.append_us, middle_run.confirm_us)
    return Summary(
        case=results[0].case, runs=len(results), median=middle_run,
        messages_per_second_min=min(rates), messages_per_second_max=max(rates),
        confirm_us_min=min(looks, default=None), confirm_us_max=max(looks, default=None),
    )  # fmt: skip


def described(found: Result | Summary) -> str:
    """One line for people."""
    if isinstance(found, Result):
        return _fencing(found) if found.confirm_us is not None else _rate(found)
    if found.confirm_us_min is not None:
        spread = f"lowest look {found.confirm_us_min:.3f}, highest {found.confirm_us_max:.3f}"
    else:
        spread = f"lowest {found.messages_per_second_min:,.0f}, highest {found.messages_per_second_max:,.0f}"
    return f"median of {found.runs}: {described(found.median)} ({spread})"


def _rate(found: Result) -> str:
    text = f"{found.case} {found.size} B: {found.messages_per_second:,.0f} messages/s"
    told = [f"{text}, {found.megabytes_per_second:,.1f} MB/s"]
    told += [words.format(value) for name, words in _TOLD if (value := getattr(found, name)) is not None]
    over = [f"{found.messages:,} messages", found.durability or "no disk"]
    for name, words in _OVER:
        if (number := getattr(found, name)) is not None:
            over.append(words.format(number, s="" if number == 1 else "s", es="" if number == 1 else "es"))
    return f"{', '.join(told)} ({', '.join(over)})"


def _fencing(found: Result) -> str:
    return (
        f"{found.case} {found.size} B: an append takes {found.append_us:.3f} µs, {found.unconfirmed_us:.3f} µs without"
        f" confirming the epoch: {found.confirm_us:.3f} µs more ({found.messages:,} appends, {found.durability})"
    )
