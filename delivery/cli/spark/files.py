"""`hoot spark export` and `hoot spark import`."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from delivery.cli import options
from delivery.cli.spark import MASTER_DEFAULT, Master
from delivery.cli.spark.choosing import From, To, chosen, run, show

Form = Annotated[str, typer.Option("--format", "-f", metavar="FORMAT", help="parquet, json (lines) or csv.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("export")(export)
    app.command("import")(import_)


def export(
    queue: options.QueueName,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Made by the export; any that Spark can write.")],
    *,
    form: Form = "parquet",
    bodies: Annotated[
        str,
        typer.Option(
            "--bodies",
            metavar="HOW",
            help="In JSON and CSV: base64, or text, which all bodies, keys and headers must be.",
        ),
    ] = "base64",
    start: From = "earliest",
    end: To = None,
    topics: options.Topics = None,
    filter: options.Filter = None,
    master: Master = MASTER_DEFAULT,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Write the messages of a queue into files, with their ids, times, keys, topics and headers.

    With --json one object {queue, folder, format, messages, until, dry_run}.
    """
    wanted = chosen(zookeeper, queue, start, end, topics, filter)
    from delivery.spark.jobs.exporting import export_queue
    from delivery.spark.jobs.files import Files

    files = Files(folder, cast("Any", form), cast("Any", bodies)).checked()
    done = run(
        "export", master,
        lambda session, bar: export_queue(session, wanted, files, dry_run=dry_run, progress=bar),
    )  # fmt: skip
    show(done, as_json=as_json, dry_run=dry_run)


def import_(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder or files; any that Spark can read.")],
    queue: options.QueueName,
    *,
    form: Form = "parquet",
    keep: Annotated[
        bool, typer.Option("--keep-partitions", help="To the partitions that the rows name, instead of by their keys.")
    ] = False,
    identity: Annotated[
        str,
        typer.Option(
            "--id", metavar="TEXT", show_default="made of the rows", help="Under one id the rows are stored once."
        ),
    ] = "",
    master: Master = MASTER_DEFAULT,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Store the rows of files in a queue. The same rows are stored once, however often it runs.

    With --json one object {queue, path, messages, identity, dry_run}.
    """
    from delivery.spark.jobs.exporting import import_files
    from delivery.spark.jobs.files import Files

    files = Files(path, cast("Any", form)).checked()
    done = run(
        "import", master,
        lambda session, bar: import_files(
            session, files, zookeeper, queue, identity=identity, where="keep" if keep else "key", dry_run=dry_run,
            progress=bar,
        ),
    )  # fmt: skip
    show(done, as_json=as_json, dry_run=dry_run)
