"""A run's outcome as text: the invariants, the failover times, the duplicates."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from tests.chaos.checks import CHECKS
from tests.chaos.figures import Failover, Figures, figures, quantile
from tests.chaos.story import Story

SHOWN = 5
"""Of what is wrong by one check."""


def report(story: Story, session_seconds: float) -> tuple[str, bool]:
    """The text, and whether every invariant holds."""
    lines, held = _invariants(story)
    lines += ["", *_figures(figures(story), session_seconds)]
    return "\n".join(lines), held


def _invariants(story: Story) -> tuple[list[str], bool]:
    lines, held = [], True
    for invariant, title, check in CHECKS:
        wrong = check(story)
        held = held and not wrong
        lines.append(f"{'FAIL' if wrong else 'pass'}  {invariant:<7} {title}")
        lines += [f"              {text}" for text in wrong[:SHOWN]]
        if len(wrong) > SHOWN:
            lines.append(f"              and {len(wrong) - SHOWN} more")
    return lines, held


def _figures(found: Figures, session_seconds: float) -> list[str]:
    faults = sum(found.faults.values())
    lines = [
        "puts: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.outcomes.items())),
        f"stored although the publisher never learned it: {found.stored_although_unknown}",
        f"callbacks: {found.callbacks}",
        f"duplicates: {found.duplicates}, {found.duplicates / max(1, faults):.0f} per fault",
        f"the longest rewind: {found.deepest} messages",
        f"faults: {faults} (" + ", ".join(f"{name} {count}" for name, count in sorted(found.faults.items())) + ")",
        f"failovers, from the fault to the first callback of a message put after it (session: {session_seconds:g} s):",
    ]
    by_fault: dict[str, list[Failover]] = defaultdict(list)
    for failover in found.failovers:
        by_fault[failover.fault].append(failover)
        by_fault["all"].append(failover)
    return lines + [_times(name, those) for name, those in sorted(by_fault.items())]


def _times(name: str, those: list[Failover]) -> str:
    times = [one.seconds for one in those]
    owned = [one.owned for one in those if one.owned is not None]
    text = (
        f"  {name:<20} {len(times):4d} partitions   median {median(times):6.2f} s   p99 {quantile(times, 0.99):6.2f} s"
        f"   max {max(times):6.2f} s"
    )
    return text + (f"   next owner: median {median(owned):5.2f} s, max {max(owned):5.2f} s" if owned else "")
