"""`hoot spark …`: jobs over whole queues that run on Spark, here or on a cluster.

One module per job; each is imported only when one of the commands is asked for, and Spark only when a job runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", envvar="HOOT_SPARK_MASTER",
        help="Where it runs: local[N], spark://HOST:PORT, yarn, k8s://….",
    ),
]  # fmt: skip
MASTER_DEFAULT = "local[*]"

spark_app = typer.Typer(help="Run jobs over whole queues on Spark.")


def add_to(app: typer.Typer) -> None:
    """Add the group of this package."""
    from delivery.cli.spark import archive, auditing, cleaning, copying, files

    for module in (archive, files, copying, auditing, cleaning):
        module.add_to(spark_app)
    app.add_typer(spark_app, name="spark")
