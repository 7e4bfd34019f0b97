"""I12, what is wrong with one subscriber is not felt by the others. Pure.

It is asked of the faults of a single subscriber that come alone: the schedule puts one behind each quiet while (see
plan). Faults of hosts and of ZooKeeper are everybody's; of them the failover times tell. A short run may hold no such
fault: then this says nothing, and `periods` shows it. `test_neighbours` asks it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.chaos.quantiles import quantile
from tests.chaos.story import GRACE_SECONDS, Fault, Story

TIMES: Final = 2.0
FELT_SECONDS: Final = 1.0
"""Below this, twice as slow is noise: three programs and six servers share two processors."""
LEAST: Final = 100
"""Messages, for a 99th percentile."""


class Period(NamedTuple):
    """What one subscription felt of another one's fault."""

    fault: Fault
    name: str
    seconds: float
    """From a put to its callback, 99th percentile."""
    baseline: float
    """The same while nothing is wrong with anybody."""


def others_unharmed(story: Story) -> list[str]:
    """While a subscriber is at fault, and nothing else is, the others' p99 is less than twice what it is in peace."""
    return [
        f"{one.name} took {one.seconds:.2f} s (p99) during {one.fault.name} of {one.fault.target}, and in peace"
        f" {one.baseline:.2f} s"
        for one in periods(story) if one.seconds > max(TIMES * one.baseline, FELT_SECONDS)
    ]  # fmt: skip


def periods(story: Story) -> Iterator[Period]:
    """All that can be said."""
    alone = [fault for fault in story.faults if _of_a_subscriber(fault) and _alone(fault, story)]
    if not alone:
        return
    for one in story.subscriptions:
        took = _times(story, one.name)
        peace = [seconds for at, seconds in took if not story.troubled(at)]
        for fault in alone:
            meanwhile = [seconds for at, seconds in took if fault.begun <= at <= fault.healed]
            if one.name != fault.target and min(len(peace), len(meanwhile)) >= LEAST:
                yield Period(fault, one.name, quantile(meanwhile, 0.99), quantile(peace, 0.99))


def _of_a_subscriber(fault: Fault) -> bool:
    return fault.name.partition("-")[0] in ("subscriber", "pushes")


def _alone(fault: Fault, story: Story) -> bool:
    return not any(
        other.begun <= fault.healed and other.healed + GRACE_SECONDS >= fault.begun
        for other in story.faults if other is not fault
    )  # fmt: skip


def _times(story: Story, name: str) -> list[tuple[float, float]]:
    """Of each message when it was put, and how long its way to the first callback took."""
    found = []
    known = set()
    for row in story.calls[name]:
        if row.place not in known and row.body in story.puts:
            known.add(row.place)
            tried = story.puts[row.body].tried
            found.append((tried, row.at - tried))
    return found
