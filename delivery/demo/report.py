"""Holds what was delivered against what was published, and says what differs. Pure: no clock, no files, no processes.

A delivery counts as *first* when its message was not delivered before to the same subscription; the others are
duplicates. Order is that of first deliveries within a partition; a rewind after a fault shows as duplicates and not as
disorder. A duplicate is explained by a fault that lies between it and the delivery before it, up to what may be
unacknowledged when a fault strikes; beyond that it is a difference.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet

import msgspec

from delivery.demo.flights import Flight, Tally, tally
from delivery.demo.records import Received
from delivery.demo.steps import Step, differing

MessageKey = tuple[int, int]
"""Partition and id: what names a message of a queue."""


class Fault(msgspec.Struct, frozen=True):
    """A process that was killed and came back."""

    what: str
    at_ns: int
    """When it was killed; CLOCK_MONOTONIC."""
    back_ns: int
    """When it was ready again."""


class Limits(msgspec.Struct, frozen=True):
    """What may be unacknowledged in one partition of one subscription."""

    messages: int
    bytes: int


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription's row. Times in milliseconds, from the publisher's `put` to the first callback."""

    subscription: str
    expected: int
    delivered: int
    distinct: int
    duplicates: int
    unexplained: int
    """Duplicates that no fault explains; a part of `duplicates`."""
    missing: int
    unexpected: int
    """Distinct messages that do not belong to the subscription."""
    out_of_order: int
    messages_per_second: float | None
    """From the first callback to the last, outages and the publisher's pace included."""
    p50_ms: float | None
    p99_ms: float | None
    calm_p50_ms: float | None
    """Over what was delivered before the first fault; the two above are over everything."""
    calm_p99_ms: float | None


class Carrier(msgspec.Struct, frozen=True):
    """One carrier, counted three times."""

    carrier: str
    file: Tally
    callbacks: Tally
    spark: Tally

    @property
    def agrees(self) -> bool:
        """Whether all three are the same."""
        return self.file == self.callbacks == self.spark


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of a demo when it is over."""

    flights: Sequence[Flight]
    stored: Sequence[MessageKey]
    """Where each flight was stored, by the publisher's receipts."""
    covered: Mapping[str, Sequence[int]]
    """By subscription, the places in `flights` of those that belong to it."""
    records: Mapping[str, Sequence[Received]]
    """By subscription, its callbacks in their order."""
    faults: Sequence[Fault]
    limits: Limits
    spark: Mapping[str, Tally]
    steps: Sequence[Step]
    """What was done with them afterwards."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a demo."""

    events: int
    subscriptions: list[Delivered]
    carriers: list[Carrier]
    steps: list[Step]
    differences: list[str]
    """What a person should look at; empty when all is well."""


def evaluate(run: Run, whole: str) -> Report:
    """The report on a run; `whole` names the subscription whose callbacks are compared with Spark and the file."""
    rows, found = [], []
    tallies = {}
    for name, covered in run.covered.items():
        firsts = first_deliveries(run.records[name])
        expected = {run.stored[index] for index in covered}
        rows.append(delivered(name, expected, firsts, run))
        tallies[name] = tally((record.carrier, record.delay) for record in firsts)
        if name != whole and tallies[name] != tally_of(run.flights[index] for index in covered):
            found.append(f"subscription {name}: what its callbacks read differs from the file")
    if wrong := misplaced(run.stored):
        found.append(f"publisher: not stored in the order of the puts: {wrong:,}")
    compared = carriers(tally_of(run.flights), tallies[whole], run.spark)
    return Report(
        events=len(run.flights), subscriptions=rows, carriers=compared, steps=list(run.steps),
        differences=[*differences(rows, compared), *found, *differing(run.steps)],
    )  # fmt: skip


def first_deliveries(records: Iterable[Received]) -> list[Received]:
    """The records without duplicates."""
    seen: dict[MessageKey, Received] = {}
    for record in records:
        seen.setdefault((record.partition, record.number), record)
    return list(seen.values())


def delivered(name: str, expected: AbstractSet[MessageKey], firsts: Sequence[Received], run: Run) -> Delivered:
    """The row of the subscription `name` that should have got `expected`, and first got each in `firsts`."""
    records = run.records[name]
    keys = {(record.partition, record.number) for record in firsts}
    calm = [record for record in firsts if not run.faults or record.at_ns < run.faults[0].at_ns]
    span_ns = records[-1].at_ns - records[0].at_ns if records else 0
    p50, p99 = _percentiles(firsts)
    calm_p50, calm_p99 = _percentiles(calm)
    return Delivered(
        subscription=name, expected=len(expected), delivered=len(records), distinct=len(firsts),
        duplicates=len(records) - len(firsts), unexplained=_unexplained(records, run.faults, run.limits),
        missing=len(expected - keys), unexpected=len(keys - expected), out_of_order=_out_of_order(firsts),
        messages_per_second=round(len(records) / span_ns * 1e9, 1) if span_ns else None,
        p50_ms=p50, p99_ms=p99, calm_p50_ms=calm_p50, calm_p99_ms=calm_p99,
    )  # fmt: skip


def misplaced(stored: Iterable[MessageKey]) -> int:
    """How many published messages, in the order of their `put`, did not get a higher id in their partition."""
    last: dict[int, int] = {}
    wrong = 0
    for partition, number in stored:
        wrong += number <= last.get(partition, -1)
        last[partition] = number
    return wrong


def carriers(file: Mapping[str, Tally], callbacks: Mapping[str, Tally], spark: Mapping[str, Tally]) -> list[Carrier]:
    """Side by side, in alphabetical order; a carrier that one of them lacks counts as none there."""
    none = Tally()
    return [
        Carrier(name, file.get(name, none), callbacks.get(name, none), spark.get(name, none))
        for name in sorted({*file, *callbacks, *spark})
    ]


def tally_of(flights: Iterable[Flight]) -> dict[str, Tally]:
    """Per carrier, from the flights of the file."""
    return tally((flight.carrier, flight.delay) for flight in flights)


def differences(rows: Iterable[Delivered], compared: Iterable[Carrier]) -> list[str]:
    """Everything that is not as it should be, one line each."""
    found = []
    for row in rows:
        for count, what in (
            (row.missing, "not delivered"), (row.unexpected, "delivered without belonging to it"),
            (row.out_of_order, "delivered out of order"), (row.unexplained, "delivered again without a fault"),
        ):  # fmt: skip
            if count:
                found.append(f"subscription {row.subscription}: {what}: {count:,}")
    for one in compared:
        if not one.agrees:
            parts = ((name, getattr(one, name)) for name in ("file", "callbacks", "spark"))
            found.append(f"carrier {one.carrier}: " + "; ".join(f"{name} {_tally(part)}" for name, part in parts))
    return found


def _tally(one: Tally) -> str:
    return f"{one.flights:,} flights, {one.departed:,} departed, {one.delay_sum:,} minutes late in all"


def _unexplained(records: Iterable[Received], faults: Sequence[Fault], limits: Limits) -> int:
    before: dict[MessageKey, int] = {}
    spent: dict[tuple[int, int], tuple[int, int]] = {}
    unexplained = 0
    for record in records:
        key = (record.partition, record.number)
        last_ns = before.get(key)
        before[key] = record.at_ns
        if last_ns is None:
            continue
        fault = _fault_between(faults, last_ns, record.at_ns)
        count, size = spent.get((record.partition, fault), (0, 0))
        if fault < 0 or count + 1 > limits.messages or size + record.size > limits.bytes:
            unexplained += 1
        else:
            spent[record.partition, fault] = (count + 1, size + record.size)
    return unexplained


def _fault_between(faults: Sequence[Fault], earlier_ns: int, later_ns: int) -> int:
    """The last fault that struck between two deliveries, -1 for none. What was under way may come until it is over."""
    struck = [n for n, fault in enumerate(faults) if earlier_ns <= fault.back_ns and fault.at_ns <= later_ns]
    return max(struck, default=-1)


def _out_of_order(firsts: Iterable[Received]) -> int:
    highest: dict[int, int] = {}
    wrong = 0
    for record in firsts:
        if record.number < highest.get(record.partition, -1):
            wrong += 1
        else:
            highest[record.partition] = record.number
    return wrong


def _percentiles(records: Iterable[Received]) -> tuple[float | None, float | None]:
    ordered = array("Q", sorted(record.waited_us for record in records))
    if not ordered:
        return None, None
    return ordered[len(ordered) // 2] / 1000, ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1000
