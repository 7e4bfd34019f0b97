"""`hoot spark clean`."""

from __future__ import annotations

import typer

from delivery.cli import options
from delivery.cli.spark import MASTER_DEFAULT, Master
from delivery.cli.spark.choosing import run, show


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(clean)


def clean(
    *,
    master: Master = MASTER_DEFAULT,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """End invalid transactions of which queues keep messages, and have hosts trim what none of them owns.

    What is found of a transaction is rolled back by the hosts, and then nobody has to remember it any more. With --json
    one object {invalid, young, ended, rolled_back, scanned, taken, dry_run}.
    """
    from delivery.spark.jobs.cleaning import clean as job

    done = job(None, zookeeper, dry_run=dry_run)
    if done is None:
        done = run("clean", master, lambda session, bar: job(session, zookeeper, dry_run=dry_run, progress=bar))
    show(done, as_json=as_json, dry_run=dry_run)
