"""A run's outcome as text: the invariants, the failover times, the duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tests.chaos.checks import CHECKS
from tests.chaos.cluster import Shape
from tests.chaos.figures import Failover, Figures, figures
from tests.chaos.neighbours import periods
from tests.chaos.plan import FAILOVERS
from tests.chaos.quantiles import quantile
from tests.chaos.story import Story

SHOWN = 5
"""Of what is wrong by one check."""


def report(story: Story, session_seconds: float) -> tuple[str, bool]:
    """The text, and whether every invariant holds."""
    lines, held = _invariants(story)
    found = figures(story)
    lines += ["", *_counts(found), *_neighbours(story), *failover_lines(found.failovers, session_seconds)]
    return "\n".join(lines), held


def again(seed: int, minutes: float, session_seconds: float, only: Sequence[str] = ()) -> str:
    """The command that plays the faults of a run again. The programs keep their own pace: what failed by a hair may
    need several tries."""
    if session_seconds == Shape().session_seconds and not only:
        return f"make chaos MINUTES={minutes:g} SEED={seed}"
    chosen = f" --only {','.join(only)}" if only else ""
    return f"python -m tests.chaos --minutes {minutes:g} --seed {seed} --session {session_seconds:g}{chosen}"


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


def _counts(found: Figures) -> list[str]:
    faults = sum(found.faults.values())
    return [
        "puts: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.outcomes.items())),
        f"stored although the publisher never learned it: {found.stored_although_unknown}",
        f"callbacks: {found.callbacks}",
        f"duplicates: {found.duplicates}, {found.duplicates / max(1, faults):.0f} per fault",
        f"the longest rewind: {found.deepest} messages",
        f"faults: {faults} (" + ", ".join(f"{name} {count}" for name, count in sorted(found.faults.items())) + ")",
    ]


def _neighbours(story: Story) -> list[str]:
    """What the subscriptions felt of one another's faults."""
    return [
        f"{one.name} during {one.fault.name} of {one.fault.target}: p99 {one.seconds:.3f} s, in peace"
        f" {one.baseline:.3f} s"
        for one in periods(story)
    ] or ["no fault of a single subscriber came alone: I12 was not asked"]


def failover_lines(failovers: Sequence[Failover], session_seconds: float) -> list[str]:
    """A line for each kind, with those of which there is none."""
    title = (
        f"failovers, from the fault to the first callback of a message put after it (session: {session_seconds:g} s;"
        " cut and leader kill: the longest silence):"
    )
    kinds = [_times(kind, [one for one in failovers if one.kind == kind]) for kind in FAILOVERS]
    return [title, *kinds, _times("all", failovers)]


def _times(name: str, those: Sequence[Failover]) -> str:
    if not those:
        return f"  {name:<12} none"
    times = [one.seconds for one in those]
    again = [one.duplicates for one in those]
    owned = [one.owned for one in those if one.owned is not None]
    text = (
        f"  {name:<12} {len(times):4d} partitions   median {median(times):5.2f} s   p99 {quantile(times, 0.99):5.2f} s"
        f"   max {max(times):5.2f} s   duplicates: median {median(again):.0f}, max {max(again)}"
    )
    return text + (f"   next owner: median {median(owned):5.2f} s, max {max(owned):5.2f} s" if owned else "")
