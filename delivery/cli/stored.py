"""How queues are, for people and for programs.

The JSON form of a queue is `{queue, generation, created, partitions, durability, ttl_seconds, retention_bytes,
backlog_messages, backlog_bytes, body_bytes_max, layout, archive, archive_first, closed}`; `queue info` adds
`subscriptions`, a list of names, and `stored`, per partition `{partition, host, epoch, first, last, messages, bytes,
backlog, archived, trouble}`. There `archived` is a list of `{first, until, messages, bytes}`, one for each file, and
what is in the archive alone counts in the numbers before it; `backlog` is `{messages, bytes, subscription, full}` of
the slowest subscription, where the queue limits it; `trouble` says why no host could be asked. Ids are strings, times
ISO 8601 in UTC; null where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from delivery.cli.members import ranges
from delivery.cli.output import NOTHING, Column, age, moment, number, show_fields, show_table, size, span, tell
from delivery.ids import MessageId
from delivery.metastore.records import QueueRecord
from delivery.model import ArchivedRange, QueueSettings

if TYPE_CHECKING:
    from delivery.client import QueueInfo, StoredPartition


_TOLD_MAX = 5
"""Reasons why partitions cannot be asked about."""


def show_queue(found: QueueInfo) -> None:
    """Print a queue: its settings, its subscriptions, and what each partition holds."""
    settings = found.record.settings
    show_fields([
        ("queue", found.record.name),
        ("created", age(found.record.created_ms)),
        *([] if found.record.store is None else [("store", found.record.store)]),
        ("durability", settings.durability),
        ("ttl", span(settings.ttl_seconds)),
        ("retention", size(settings.retention_bytes)),
        *([("publishers wait at", _limits(settings))] if settings.has_backlog_limit else []),
        ("body limit", size(settings.body_bytes_max)),
        *([] if settings.layout is None else [("layout", settings.layout)]),
        *([] if settings.archive is None else [("archive", settings.archive)]),
        *([("retention waits for", "the archive")] if settings.archive_first else []),
        *([("closed", "nobody can publish to it")] if settings.closed else []),
        ("subscriptions", ", ".join(found.subscriptions) or NOTHING),
    ])  # fmt: skip
    print()
    _show_stored(found.partitions)
    if settings.has_backlog_limit:
        print()
        _show_backlogs(found.partitions)
    if settings.archive is not None:
        print()
        _show_archived(found.partitions)


def _limits(settings: QueueSettings) -> str:
    found = []
    if settings.backlog_messages is not None:
        found.append(f"{number(settings.backlog_messages)} messages")
    if settings.backlog_bytes is not None:
        found.append(size(settings.backlog_bytes))
    return f"{' or '.join(found)} of a partition that are not acknowledged"


def _show_backlogs(partitions: Sequence[StoredPartition]) -> None:
    columns = [
        Column("partition", "right"), Column("not acknowledged", "right"), Column("size", "right"),
        Column("by subscription"), Column("publishers"),
    ]  # fmt: skip
    rows = []
    for one in partitions:
        found = one.backlog
        if found is None:
            rows.append([str(one.partition), *[NOTHING] * 4])
            continue
        state = "wait" if found.full else "go on"
        rows.append([
            str(one.partition), number(found.messages), size(found.bytes), found.subscription or NOTHING, state,
        ])  # fmt: skip
    show_table(columns, rows)


def _show_stored(partitions: Sequence[StoredPartition]) -> None:
    columns = [
        Column("partition", "right"), Column("messages", "right"), Column("size", "right"), Column("oldest"),
        Column("newest"), Column("host"), Column("epoch", "right"),
    ]  # fmt: skip
    known = [one for one in partitions if one.host is not None]
    total = ["total", number(sum(one.messages for one in known)), size(sum(one.bytes for one in known))]
    footer = [*total, "", "", "", ""] if len(partitions) > 1 else None
    show_table(columns, [_stored_row(one) for one in partitions], total=footer)
    _tell_troubles(partitions)


def _tell_troubles(partitions: Sequence[StoredPartition]) -> None:
    """Why a dash stands for the host of some."""
    whose: dict[str, list[int]] = {}
    for one in partitions:
        if one.host is None:
            whose.setdefault(one.trouble, []).append(one.partition)
    for trouble, numbers in list(whose.items())[:_TOLD_MAX]:
        tell(f"partition {ranges(tuple(numbers))}: {trouble}")
    if whose:
        tell("`hoot host list` shows the hosts that live; their logs tell more")


def _show_archived(partitions: Sequence[StoredPartition]) -> None:
    columns = [
        Column("partition", "right"), Column("files", "right"), Column("archived", "right"), Column("size", "right"),
        Column("from"), Column("until"),
    ]  # fmt: skip
    rows = []
    for one in partitions:
        sums = [number(len(one.archived)), number(sum(file.messages for file in one.archived)),
                size(sum(file.bytes for file in one.archived))]  # fmt: skip
        ends = (
            [age(one.archived[0].first_id >> 15), age(one.archived[-1].until >> 15)] if one.archived else [NOTHING] * 2
        )
        rows.append([str(one.partition), *sums, *ends])
    show_table(columns, rows)


def _stored_row(one: StoredPartition) -> list[str]:
    if one.host is None:
        return [str(one.partition), *[NOTHING] * 6]
    ages = [age(one.first.timestamp_ms), age(one.last.timestamp_ms)]
    return [str(one.partition), number(one.messages), size(one.bytes), *ages, one.host, str(one.epoch)]


def queue_fields(record: QueueRecord) -> dict[str, Any]:
    """The JSON form of a queue's record."""
    settings = record.settings
    return {
        "queue": record.name,
        "generation": record.generation,
        "created": moment(record.created_ms),
        "partitions": settings.partitions,
        "store": record.store,
        "durability": settings.durability,
        "ttl_seconds": settings.ttl_seconds,
        "retention_bytes": settings.retention_bytes,
        "backlog_messages": settings.backlog_messages,
        "backlog_bytes": settings.backlog_bytes,
        "body_bytes_max": settings.body_bytes_max,
        "layout": settings.layout,
        "archive": settings.archive,
        "archive_first": settings.archive_first,
        "closed": settings.closed,
    }


def _stored_fields(one: StoredPartition) -> dict[str, Any]:
    known = one.host is not None
    return {
        "partition": one.partition,
        "host": one.host,
        "epoch": one.epoch if known else None,
        "first": str(one.first) if one.first else None,
        "last": str(one.last) if one.last else None,
        "messages": one.messages if known else None,
        "bytes": one.bytes if known else None,
        "backlog": None if one.backlog is None else msgspec.structs.asdict(one.backlog),
        "archived": [_file_fields(file) for file in one.archived],
        "trouble": one.trouble or None,
    }


def info_fields(found: QueueInfo) -> dict[str, Any]:
    """The JSON form of a queue with all that is shown of it."""
    stored = [_stored_fields(one) for one in found.partitions]
    return {**queue_fields(found.record), "subscriptions": list(found.subscriptions), "stored": stored}


def _file_fields(file: ArchivedRange) -> dict[str, Any]:
    first, until = str(MessageId(file.first_id)), str(MessageId(file.until))
    return {"first": first, "until": until, "messages": file.messages, "bytes": file.bytes}


def queue_row(record: QueueRecord) -> list[str]:
    """A line of `hoot queue list`."""
    settings = record.settings
    return [
        record.name, number(settings.partitions), settings.durability, span(settings.ttl_seconds),
        size(settings.retention_bytes), age(record.created_ms),
    ]  # fmt: skip
