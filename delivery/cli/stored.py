"""What the partitions of a queue hold, as `hoot queue info` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from delivery.cli.members import ranges
from delivery.cli.output import NOTHING, Column, age, number, show_table, size, tell
from delivery.ids import MessageId
from delivery.model import ArchivedRange

if TYPE_CHECKING:
    from delivery.client import StoredPartition

_TOLD_MAX = 5
"""Reasons why partitions cannot be asked about."""


def show_stored(partitions: Sequence[StoredPartition]) -> None:
    """Print what each partition holds and who owns it."""
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


def show_archived(partitions: Sequence[StoredPartition]) -> None:
    """Print what of each partition is in the archive."""
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


def stored_fields(one: StoredPartition) -> dict[str, Any]:
    """The JSON form of a partition."""
    known = one.host is not None
    return {
        "partition": one.partition,
        "host": one.host,
        "epoch": one.epoch if known else None,
        "first": str(one.first) if one.first else None,
        "last": str(one.last) if one.last else None,
        "messages": one.messages if known else None,
        "bytes": one.bytes if known else None,
        "archived": [_file_fields(file) for file in one.archived],
        "trouble": one.trouble or None,
    }


def _file_fields(file: ArchivedRange) -> dict[str, Any]:
    first, until = str(MessageId(file.first_id)), str(MessageId(file.until))
    return {"first": first, "until": until, "messages": file.messages, "bytes": file.bytes}
