"""What a case measured, as the one line that `hoot bench` prints, for people or in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, Final

import msgspec


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run of one case. Of its JSON the first ten are in every line, the others where they apply."""

    case: str
    size: int
    messages: int
    seconds: float
    messages_per_second: float
    megabytes_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    durability: str | None
    by: str | None = None
    """What put the messages, unless that was `put`."""
    batch: int | None = None
    """Messages in a batch at most, where that was chosen."""
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
    host_seconds_per_million: float | None = None
    """Processor time that all hosts spent for a million messages of the rate."""
    touched: int | None = None
    """`spread` only: the partitions that messages went to."""
    one_per_second: float | None = None
    """The same messages to a queue of one partition."""
    ratio_to_one: float | None = None
    """This rate divided by that."""
    log_mib: int | None = None
    """`restart` only: what lies on the disk."""
    ready_ms: float | None = None
    """From the start of the host's process to the first message that it has stored."""
    empty_ready_ms: float | None = None
    """The same with nothing on the disk."""
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
    """And with them, at most; of other cases, the most while the messages went through."""


_TOLD: Final = (
    ("requests_per_second", "{:,.0f} requests/s"),
    ("p50_ms", "p50 {} ms"), ("p99_ms", "p99 {} ms"), ("p999_ms", "p99.9 {} ms"),
    ("alone_p99_ms", "p99 alone {} ms"), ("ratio_to_alone", "{} times that"),
    ("joined_pause_ms", "pause {} ms when a member came"), ("left_pause_ms", "{} ms when it went"),
    ("redelivered", "{:,} came again"), ("all_seconds", "all handled after {} s"),
    ("processor_percent", "{} % of a processor while idle"),
    ("host_seconds_per_million", "host {} s per million"), ("host_mib", "host {} MiB"), ("alone_mib", "{} MiB before"),
    ("ratio_to_all", "{} times that of reading every topic"),
    ("ratio_to_one", "{} of one partition's"), ("one_per_second", "{:,.0f} messages/s"),
    ("ratio_to_floor", "{} of the floor"), ("ratio_to_raw", "{} of happybase's"), ("raw_per_second", "{:,.0f} rows/s"),
)  # fmt: skip
"""The figures of a case besides its rates, in the order of the line."""

_OVER: Final = (
    ("by", "by {}"), ("batch", "{:,} in a batch"),
    ("partitions", "{:,} partition{s}"), ("touched", "{:,} of them used"), ("processes", "{:,} process{es}"),
    ("members", "{:,} member{s}"), ("subscriptions", "{:,} subscription{s}"), ("connections", "{:,} connection{s}"),
)  # fmt: skip

_FIGURES: Final = (
    "seconds", "messages_per_second", "megabytes_per_second", "append_us", "confirm_us", "ready_ms", "empty_ready_ms",
    *(name for name, _ in _TOLD),
)  # fmt: skip
"""Of which a summary tells the medians, the lowest and the highest."""


class Summary(msgspec.Struct, kw_only=True):
    """Several runs of one case."""

    case: str
    runs: int
    median: Result
    """Of each figure by itself."""
    lowest: dict[str, float]
    """By the names of the figures."""
    highest: dict[str, float]


def result(case: str, size: int, messages: int, seconds: float, durability: str | None = None) -> Result:
    """A rate, from how many messages of `size` bytes took how long."""
    return Result(
        case=case, size=size, messages=messages, seconds=round(seconds, 4),
        messages_per_second=round(messages / seconds, 1),
        megabytes_per_second=round(messages * size / seconds / 1e6, 2),
        p50_ms=None, p99_ms=None, p999_ms=None, durability=durability,
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
    found = {name: values for name in _FIGURES if (values := _values(results, name))}
    middle = msgspec.structs.replace(results[0], **{name: _middle(values) for name, values in found.items()})
    if middle.append_us is not None and middle.confirm_us is not None:
        middle = with_fencing(middle, middle.append_us, middle.confirm_us)
    return Summary(
        case=results[0].case, runs=len(results), median=middle,
        lowest={name: min(values) for name, values in found.items()},
        highest={name: max(values) for name, values in found.items()},
    )  # fmt: skip


def _values(results: Sequence[Result], name: str) -> list[Any]:
    return [value for one in results if (value := getattr(one, name)) is not None]


def _middle(values: Sequence[Any]) -> object:
    middle = median(values)
    return middle if isinstance(middle, int) else round(middle, 4)


def described(found: Result | Summary) -> str:
    """One line for people."""
    if isinstance(found, Summary):
        return f"median of {found.runs}: {described(found.median)} ({_spread(found)})"
    if found.confirm_us is not None:
        return _fencing(found)
    return _rate(found) if found.ready_ms is None else _restart(found)


_SPREAD: Final = (
    ("confirm_us", "lowest look {:.3f}, highest {:.3f}"), ("ready_ms", "lowest {:,.0f} ms, highest {:,.0f} ms"),
    ("messages_per_second", "lowest {:,.0f}, highest {:,.0f}"),
)  # fmt: skip


def _spread(found: Summary) -> str:
    """Of what the case is about; of latencies besides, if it has some."""
    name, words = next(one for one in _SPREAD if one[0] in found.lowest)
    told = [words.format(found.lowest[name], found.highest[name])]
    told += [
        f"{percentile} {found.lowest[name]:g} to {found.highest[name]:g} ms"
        for name, percentile in (("p50_ms", "p50"), ("p99_ms", "p99")) if name in found.lowest
    ]  # fmt: skip
    return "; ".join(told)


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


def _restart(found: Result) -> str:
    return (
        f"{found.case}: {found.ready_ms:,.0f} ms from the start of the host to the first stored message with"
        f" {found.log_mib:,} MiB on the disk, {found.empty_ready_ms:,.0f} ms with none"
    )
