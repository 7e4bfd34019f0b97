"""What an audit found, as plain records, from which the report is made."""

from __future__ import annotations

import msgspec

from delivery.spark.jobs.audit.counts import Counts, summed


class Minute(msgspec.Struct, frozen=True):
    """What counts at a minute, which is its begin in milliseconds since 1970."""

    begin_ms: int
    counts: Counts


class Listener(msgspec.Struct, frozen=True):
    """A process that recorded deliveries."""

    name: str
    counts: Counts


class Finding(msgspec.Struct, frozen=True):
    """A message that something was wrong with."""

    partition: int
    number: int
    topic: str
    what: str


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of one subscription."""

    name: str
    kind: str
    recorded: bool
    """Whether there are records of its deliveries at all."""
    partitions: dict[int, Counts]
    minutes: tuple[Minute, ...]
    """In their order; those at which nothing counts may be left out."""
    topics: dict[str, Counts]
    listeners: tuple[Listener, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def totals(self) -> Counts:
        """Of all partitions; the slowest latency is the largest."""
        return summed(self.partitions.values())


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the report tells."""

    queue: str
    made_ms: int
    begin: str
    """Where the audited stretch begins, as it was asked for."""
    until: str
    messages: int
    """That the queue holds there."""
    late_ms: int
    sections: tuple[Section, ...]
    broken_lines: int = 0
