"""`hoot spark audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from delivery.cli import options
from delivery.cli.output import Column, number, show_table, tell
from delivery.cli.spark import MASTER_DEFAULT, Master
from delivery.cli.spark.choosing import From, To, chosen, run, show

if TYPE_CHECKING:
    from delivery.spark.jobs.audit.auditing import Audited

_SHOWN = ("published", "acknowledged", "parked", "dead", "waiting", "delivered", "missing", "duplicates", "late")


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("audit")(audit)


def audit(
    queue: options.QueueName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="For the tables and report.html; made by this.")],
    *,
    subscriptions: Annotated[
        list[str] | None,
        typer.Option("--subscription", "-s", metavar="NAME", show_default="all", help="Only this one; repeatable."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option("--records", metavar="DIR", show_default=False, help="What subscribers recorded: see --record."),
    ] = None,
    late: Annotated[
        float | None,
        typer.Option(
            "--late", parser=options.parse_span, metavar="TIME", help="Later than this is late.", show_default="1m"
        ),
    ] = None,
    start: From = "earliest",
    end: To = None,
    master: Master = MASTER_DEFAULT,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Compare what was published with what was delivered and acknowledged, as tables and an HTML report.

    Without --records, from what the metadata tell: lag, ages and topics. With them also what is missing, late, or was
    delivered twice. With --json one object {queue, folder, messages, until, subscriptions, dry_run}.
    """
    wanted = chosen(zookeeper, queue, start, end, None, None)
    from delivery.spark.jobs.audit.auditing import LATE_SECONDS, Wanted, audit as audit_queue

    asked = Wanted(
        subscriptions=tuple(subscriptions or ()), records="" if records is None else str(records),
        late_seconds=LATE_SECONDS if late is None else late,
    )  # fmt: skip
    done = run(
        "audit", master, lambda session, bar: audit_queue(session, wanted, folder, asked, dry_run=dry_run, progress=bar)
    )
    if as_json or dry_run:
        show(done, as_json=as_json, dry_run=dry_run)
    else:
        _show(done)


def _show(done: Audited) -> None:
    rows = [
        [name, *(number(counts.get(what, 0)) for what in _SHOWN)] for name, counts in sorted(done.subscriptions.items())
    ]
    show_table([Column("subscription"), *(Column(what, "right") for what in _SHOWN)], rows)
    tell(f"{done.folder}/report.html tells more")
