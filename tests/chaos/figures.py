"""What a run measured: failover times, duplicates, and how it all ended. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from tests.chaos.checks import rewinds
from tests.chaos.plan import FAILOVERS, OWNER_FAULTS, SILENCES
from tests.chaos.story import GRACE_SECONDS, Fault, Row, Story


class Failover(msgspec.Struct, frozen=True):
    """One partition's way to its next owner."""

    fault: str
    partition: int
    seconds: float
    """From the fault to the first callback of a message that was put after it. A host that is cut off from ZooKeeper
    delivers on for a while: there it is the longest silence."""
    owned: float | None
    """From the fault until ZooKeeper was seen to name the next owner; None when nobody had to take over."""
    duplicates: int
    """Callbacks of what their subscription had before, in that partition, while the fault may be felt."""

    @property
    def kind(self) -> str:
        """See plan.FAILOVERS."""
        return next(kind for kind, names in FAILOVERS.items() if self.fault in names)


class Figures(msgspec.Struct, frozen=True):
    """Counted over a whole run."""

    outcomes: dict[str, int]
    stored_although_unknown: int
    """Of those whose publisher never learned it."""
    callbacks: int
    duplicates: int
    """Callbacks of what a subscription had before."""
    deepest: int
    """The longest rewind, in messages."""
    failovers: tuple[Failover, ...]
    faults: dict[str, int]


def figures(story: Story) -> Figures:
    """All of them."""
    outcomes = Counter(put.outcome for put in story.puts.values())
    unknown = sum(
        1 for row in story.scan
        if row.body in story.puts and story.puts[row.body].outcome in ("unknown", "open")
    )  # fmt: skip
    return Figures(
        outcomes=dict(outcomes), stored_although_unknown=unknown, callbacks=sum(map(len, story.calls.values())),
        duplicates=sum(1 for rows in story.calls.values() for _ in _again(rows)),
        deepest=max((one.depth for one in rewinds(story)), default=0), failovers=tuple(failovers(story)),
        faults=dict(Counter(fault.name for fault in story.faults)),
    )  # fmt: skip


def failovers(story: Story) -> list[Failover]:
    """Of each partition that a struck host owned; those after which nothing was put are left out."""
    calls: dict[int, list[Row]] = defaultdict(list)
    for rows in story.calls.values():
        for row in rows:
            calls[row.partition].append(row)
    for rows in calls.values():
        rows.sort(key=lambda row: row.at)
    again = [one for rows in story.calls.values() for one in _again(rows)]
    found = []
    for fault in story.faults:
        if fault.name not in OWNER_FAULTS:
            continue
        for partition in sorted(fault.partitions):
            rows = calls.get(partition, [])
            seconds = _silence(rows, fault) if fault.name in SILENCES else _until_new(rows, fault, story)
            if seconds is not None:
                felt = sum(one.partition == partition and fault.felt(one.at) for one in again)
                owned = None if fault.name in FAILOVERS["leader kill"] else _until_owned(partition, fault, story)
                found.append(Failover(fault.name, partition, seconds, owned, felt))
    return found


def _again(rows: list[Row]) -> Iterator[Row]:
    """The callbacks of what was called back before."""
    known = set()
    for row in rows:
        if row.place in known:
            yield row
        known.add(row.place)


def _until_owned(partition: int, fault: Fault, story: Story) -> float | None:
    epoch = 0
    for seen in story.seen:
        if seen.subscription or seen.partition != partition:
            continue
        if seen.at > fault.begun and seen.epoch > epoch:
            return seen.at - fault.begun if seen.at < fault.healed + GRACE_SECONDS else None
        epoch = max(epoch, seen.epoch)
    return None


def _until_new(rows: list[Row], fault: Fault, story: Story) -> float | None:
    for row in rows:
        if row.at > fault.begun and row.body in story.puts and story.puts[row.body].tried > fault.begun:
            return row.at - fault.begun
    return None


def _silence(rows: list[Row], fault: Fault) -> float | None:
    gaps = [after.at - before.at for before, after in pairwise(rows) if fault.begun <= before.at <= fault.healed]
    return max(gaps, default=None)
