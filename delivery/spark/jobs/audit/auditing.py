"""The audit as a job: counts on Spark, two tables and a report into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession, functions as F  # noqa: N812 - as Spark's own texts write it

from delivery import wall
from delivery.errors import InvalidRequest
from delivery.spark.jobs.audit.counts import COUNTS, LATENCIES, SLOWEST, Counts
from delivery.spark.jobs.audit.facts import broken_lines, facts, findings, table
from delivery.spark.jobs.audit.report import html
from delivery.spark.jobs.audit.sections import Finding, Listener, Minute, Report, Section
from delivery.spark.jobs.audit.subjects import Subject, subjects
from delivery.spark.jobs.choosing import Chosen, Pinned, pin
from delivery.spark.jobs.failing import told_plainly
from delivery.spark.jobs.following import Steps
from delivery.spark.jobs.running import Progress, silent
from delivery.spark.planning import engine

LATE_SECONDS: Final = 60.0
SHOWN_MAX: Final = 20
"""Findings of a subscription that the report shows."""
_BY: Final = ("partition", "minute", "topic", "listener")
REPORT: Final = "report.html"
# The table, the findings, what is read back, broken lines: about how long each takes, and in how many stages.
_RECORDED: Final = ((60, 8), (15, 4), (20, 10), (5, 2))
_PLAIN: Final = (_RECORDED[0], _RECORDED[2])


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be audited beside the messages."""

    subscriptions: tuple[str, ...] = ()
    """Empty for all of the queue."""
    records: str = ""
    """A folder with what `subscriber.Recorder` wrote; without, only what the metadata tell."""
    late_seconds: float = LATE_SECONDS


class Audited(msgspec.Struct, frozen=True):
    """What an audit found."""

    queue: str
    folder: str
    messages: int
    until: str
    subscriptions: dict[str, Counts]
    """By name what was counted in all."""


def audit(
    session: SparkSession, chosen: Chosen, folder: Path, wanted: Wanted | None = None, *, dry_run: bool = False,
    progress: Progress = silent,
) -> Audited:  # fmt: skip
    """Compare what was published with what was delivered and acknowledged.

    Makes the folder, with the tables `counts` and, with records, `findings` (Parquet), and the report. Raises
    InvalidRequest when it is there, UnknownQueue, UnknownSubscription, JobFailed.
    """
    wanted = wanted or Wanted()
    if folder.exists():
        raise InvalidRequest(f"{folder} is there already: name another folder, or remove it")
    with told_plainly(), engine(chosen.zookeeper) as hosts:
        pinned = pin(hosts, chosen)
        found = subjects(hosts.catalog, chosen.queue, wanted.subscriptions)
        sections: Sequence[Section] = ()
        broken = 0
        if found and not dry_run:
            steps = Steps(session, progress, _RECORDED if wanted.records else _PLAIN)
            rows = facts(session, hosts, pinned, found, wanted.records, round(wanted.late_seconds * 1000))
            rows.persist()  # both tables tell of the same moment, though records go on being written
            sections = _written(session, steps, rows, folder, found, recorded=bool(wanted.records))
            rows.unpersist()
            if wanted.records:
                with steps.next():
                    broken = broken_lines(session, wanted.records)
        if not dry_run:
            _write_report(folder, _report(pinned, sections, round(wanted.late_seconds * 1000), broken))
    counts = {one.name: one.totals for one in sections}
    return Audited(chosen.queue, str(folder), pinned.messages, str(pinned.end), counts)


def _written(
    session: SparkSession, steps: Steps, rows: DataFrame, folder: Path, found: Sequence[Subject], *, recorded: bool
) -> list[Section]:  # fmt: skip
    """The tables; and what the report tells, read back from them."""
    place = f"file://{folder.absolute()}"  # beside the report, whatever file system is Spark's own
    with steps.next():
        table(rows).coalesce(1).write.parquet(f"{place}/counts")
    shown: dict[str, list[Finding]] = {}
    if recorded:
        with steps.next():
            shown = _found(session, rows, f"{place}/findings")
    with steps.next():
        by = _grouped(session.read.parquet(f"{place}/counts"))
    return [_section(one, by, shown.get(one.name, [])) for one in found]


def _found(session: SparkSession, rows: DataFrame, place: str) -> dict[str, list[Finding]]:
    """Write the findings; the first of them, by subscription."""
    findings(rows).write.parquet(place)
    shown: dict[str, list[Finding]] = {}
    for row in _first_of_each(session.read.parquet(place)):
        what = Finding(row.partition, row.offset, row.topic or "", ", ".join(row.findings))
        shown.setdefault(row.subscription, []).append(what)
    return shown


def _section(one: Subject, by: dict[tuple[str, str], list[Row]], shown: list[Finding]) -> Section:
    partitions, minutes, topics, listeners = (by.get((one.name, column), []) for column in _BY)
    known = [row for row in listeners if row.name is not None]
    return Section(
        name=one.name, kind=one.kind, recorded=bool(known), notes=one.notes, findings=tuple(shown),
        partitions={int(row.name): _counts(row) for row in partitions},
        minutes=tuple(Minute(int(row.name), _counts(row)) for row in sorted(minutes, key=lambda row: int(row.name))),
        topics={row.name or "": _counts(row) for row in topics if row.published},
        listeners=tuple(Listener(row.name, _counts(row)) for row in known),
    )  # fmt: skip


def _grouped(counted: DataFrame) -> dict[tuple[str, str], list[Row]]:
    """The sums by each of some columns, as `name`, for each subscription and column."""
    sums = [F.sum(name).alias(name) for name in (*COUNTS, *LATENCIES)]
    parts = [
        counted.groupBy("subscription", F.col(one).cast("string").alias("name"), F.lit(one).alias("by")).agg(
            *sums, F.max(SLOWEST).alias(SLOWEST)
        )
        for one in _BY
    ]
    found: dict[tuple[str, str], list[Row]] = {}
    for row in reduce(DataFrame.unionByName, parts).collect():
        found.setdefault((row.subscription, row.by), []).append(row)
    return found


def _first_of_each(found: DataFrame) -> list[Row]:
    spread = found.groupBy("subscription").agg(
        F.slice(F.sort_array(F.collect_list(F.struct("offset", "partition", "topic", "findings"))), 1, SHOWN_MAX).alias(
            "all"
        )
    )
    return spread.select("subscription", F.explode("all").alias("one")).select("subscription", "one.*").collect()


def _counts(row: Any) -> Counts:
    return {name: int(row[name]) for name in (*COUNTS, *LATENCIES, SLOWEST)}


def _report(pinned: Pinned, sections: Sequence[Section], late_ms: int, broken: int) -> Report:
    return Report(
        queue=pinned.chosen.queue, made_ms=wall.ms(), begin=str(pinned.chosen.start), until=str(pinned.end),
        messages=pinned.messages, late_ms=late_ms, sections=tuple(sections), broken_lines=broken,
    )  # fmt: skip


def _write_report(folder: Path, report: Report) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REPORT).write_text(html(report), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"the report cannot be written into {folder}: {error.strerror or error}") from error
