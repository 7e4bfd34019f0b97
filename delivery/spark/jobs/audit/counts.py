"""What an audit counts, and what it says of latencies. Plain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

COUNTS: Final = (
    "published", "acknowledged", "parked", "dead", "waiting", "watched", "delivered", "missing", "duplicates", "late",
    "stray", "arrivals",
)  # fmt: skip
"""Columns of the table, each a sum of messages:

    published      that the subscription is to have, by the minute of their publishing
    acknowledged   of these: acknowledged
    parked         not handled yet, though the position is past them
    dead           given up, and kept as dead letters
    waiting        above the position: not acknowledged yet, as far as is known
    watched        of those published: since there are records of the subscription
    delivered      of those published: that have a record
    missing        acknowledged without a record
    duplicates     records beyond the first
    late           whose first delivery came later than allowed
    stray          recorded, but not there: dropped since by retention, say
    arrivals       first deliveries by the minute of their delivery
"""

EDGES_MS: Final = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000,
)  # fmt: skip
"""Upper edges of the latencies' classes, in milliseconds; one more class is above them all."""
LATENCIES: Final = (*(f"to_{edge}_ms" for edge in EDGES_MS), "above")
"""Columns of the table: how many first deliveries took so long."""
SLOWEST: Final = "slowest_ms"
"""A column that is no sum, but the largest."""


Counts = dict[str, int]
"""By the names above; what is not there is 0."""


def summed(each: Iterable[Counts]) -> Counts:
    """The sums, and of what is no sum the largest."""
    found: Counts = {}
    for one in each:
        for name, value in one.items():
            found[name] = max(found.get(name, 0), value) if name == SLOWEST else found.get(name, 0) + value
    return found


def classes(counts: Counts) -> list[int]:
    """How many first deliveries are in each class of latencies."""
    return [counts.get(name, 0) for name in LATENCIES]


def quantile_ms(counts: Counts, part: float) -> int | None:
    """Up to how many milliseconds that part of the first deliveries took: the edge of its class, or the slowest.

    None when there are none.
    """
    slowest, each = counts.get(SLOWEST, 0), classes(counts)
    wanted, seen = part * sum(each), 0
    if not wanted:
        return None
    for edge, count in zip(EDGES_MS, each, strict=False):
        seen += count
        if seen >= wanted:
            return min(edge, slowest)
    return slowest


def told_ms(milliseconds: float) -> str:
    """A latency, for people."""
    if milliseconds < 1_000:
        return f"{milliseconds:g} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.3g} s"
    return f"{milliseconds / 60_000:.3g} min" if milliseconds < 3_600_000 else f"{milliseconds / 3_600_000:.3g} h"
