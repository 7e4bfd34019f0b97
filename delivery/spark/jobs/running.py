"""What all jobs share: the session that `--master` asks for, and a bar that tells how far the job is."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from delivery.errors import HootError
from delivery.spark.session import session_at

Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


def silent(done: int, total: int) -> None:
    """A Progress that nobody looks at."""


@contextmanager
def session(name: str, master: str) -> Iterator[SparkSession]:
    """A session of a job, with a folder for Spark's own files that goes with it.

    Raises EmbeddedError without a Java that Spark can use.
    """
    with tempfile.TemporaryDirectory(prefix="hoot-spark-", ignore_cleanup_errors=True) as work:
        made = session_at(master, f"hoot {name}", Path(work), cores=os.cpu_count() or 1)
        try:
            yield made
        finally:
            made.stop()


@contextmanager
def bar(title: str) -> Iterator[Progress]:
    """A progress bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


class JobFailed(HootError):
    """Spark could not run a job's tasks, for another reason than what they raise themselves."""

    code = "job_failed"
