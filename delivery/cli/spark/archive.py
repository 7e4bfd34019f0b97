"""`hoot spark archive`.

With --json: {queue, archived, partitions}, where `archived` is false for a dry run and `partitions` is a list of
{partition, files, messages, bytes, after, until}; `after` and `until` are ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from delivery.cli import options
from delivery.cli.output import Column, age, number, show_json, show_table, size, tell
from delivery.cli.spark import MASTER_DEFAULT, Master
from delivery.ids import MessageId

if TYPE_CHECKING:
    from delivery.spark.jobs.archive import Archived


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(archive)


def archive(
    queue: options.QueueName,
    *,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FOLDER", show_default="the queue's",
            help="Where the archive is, for good: a folder that hosts and executors see under this path, too.",
        ),
    ] = None,
    partitions: options.Partitions = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", show_default="now", help="Only what is older than this time."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", show_default=False, help="The same, as an age: 7d, 12h."),
    ] = None,
    dry_run: options.DryRun = False,
    master: Master = MASTER_DEFAULT,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Copy what a queue holds to Parquet files, from which hosts go on reading it when retention has dropped it."""
    end = _end(until, older_than)
    from delivery.spark.jobs import archive as job, running

    until_ms = None if end is None else round(end.timestamp() * 1000)
    work = partial(job.archive, zookeeper=zookeeper, queue=queue, folder=to, until_ms=until_ms,
                   partitions=options.chosen(partitions))  # fmt: skip
    done = work(None)
    if any(one.files for one in done) and not dry_run:  # what is wrong is told, and nothing done, without a Spark
        with running.session(f"archive {queue}", master) as session, running.bar(f"archive {queue}") as progress:
            done = work(session, progress=progress)
    if as_json:
        fields = [
            {**_fields(one), "after": str(MessageId(one.after)), "until": str(MessageId(one.until))} for one in done
        ]
        show_json({"queue": queue, "archived": not dry_run, "partitions": fields})
    else:
        _show(queue, done, dry_run=dry_run)


def _end(until: str | None, older_than: str | None) -> datetime | None:
    if until is not None and older_than is not None:
        raise typer.BadParameter("--until and --older-than say the same: use one of them")
    text = until if older_than is None else f"{older_than} ago"
    if text is None:
        return None
    found = options.place(text, "--until" if older_than is None else "--older-than")
    if not isinstance(found, datetime):
        raise typer.BadParameter(f"{text[:40]!r} is no time", param_hint="--until")
    return found


def _fields(one: Archived) -> dict[str, int]:
    return {"partition": one.partition, "files": one.files, "messages": one.messages, "bytes": one.bytes}


def _show(queue: str, done: Sequence[Archived], *, dry_run: bool) -> None:
    columns = [
        Column("partition", "right"), Column("files", "right"), Column("messages", "right"), Column("size", "right"),
        Column("archived until"),
    ]  # fmt: skip
    rows = [
        [str(one.partition), number(one.files), number(one.messages), size(one.bytes or None), age(one.until >> 15)]
        for one in done
    ]
    total = ["total", number(sum(one.files for one in done)), number(sum(one.messages for one in done)),
             size(sum(one.bytes for one in done) or None), ""]  # fmt: skip
    show_table(columns, rows, total=total if len(rows) > 1 else None)
    verb = "would be" if dry_run else "are"
    if not any(one.messages for one in done):
        tell(f"all of queue {queue} that is closed is archived")
    else:
        tell(f"these messages of queue {queue} {verb} archived")
