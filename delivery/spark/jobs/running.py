"""What all jobs share: the session that `--master` asks for, and a bar that tells how far the job is."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import SparkSession

from delivery.errors import HootError, InvalidRequest, from_code
from delivery.spark.session import session_at

_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|spark://\S+:\d+|k8s://.+"
)
"""Spark Connect's `sc://` is none: jobs have Spark do what only its own driver can."""
_SAID = re.compile(r"^(?:Caused by)?: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
"""What a Java exception says, and what each of those that led to it."""
T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


def silent(done: int, total: int) -> None:
    """A Progress that nobody looks at."""


@contextmanager
def session(name: str, master: str) -> Iterator[SparkSession]:
    """A session of a job, with a folder for Spark's own files that goes with it.

    Raises InvalidRequest for a master that is none or does not answer, EmbeddedError without a Java that Spark can use.
    """
    if not _MASTER.fullmatch(master):
        raise InvalidRequest(
            f"a job runs on local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT, not on {master[:60]!r}"
        )
    with tempfile.TemporaryDirectory(prefix="hoot-spark-", ignore_cleanup_errors=True) as work:
        try:
            # What is wrong with a start is raised, and the log would have pages on it.
            made = session_at(master, f"hoot {name}", Path(work), cores=os.cpu_count() or 1, level="off")
        except (PySparkException, Py4JError) as error:
            raise InvalidRequest(f"Spark cannot be started on {master[:60]}: {why(error)}") from error
        try:
            yield made
        finally:
            made.stop()


def why(error: BaseException) -> str:
    """The line of Java's pages on a start that failed that says what was wrong."""
    text = str(error)
    if "stopped SparkContext" in text:
        return "no master answers there"  # what Spark's start meets then is that it has given up
    found = [said for said in _SAID.findall(text) if said.strip()] or text.strip().splitlines()
    return found[-1][:300] if found else type(error).__name__


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


def context(session: SparkSession) -> SparkContext:
    """What has Spark do more than queries. Raises InvalidRequest for a session of Spark Connect, which has none."""
    try:
        return session.sparkContext
    except PySparkAttributeError:
        raise InvalidRequest(
            "a job needs a Spark session with a driver of its own (local[N], spark://HOST:PORT, yarn, k8s://…), not one"
            " of Spark Connect"
        ) from None


def cores(session: SparkSession) -> int:
    """How many tasks run at a time. Raises as `context`."""
    return max(1, context(session).defaultParallelism)


def spread(session: SparkSession, work: Callable[[T], R], tasks: Sequence[T], kind: Any) -> list[R]:
    """What `work` gives for each task, each on its own somewhere in the cluster; `kind` is the type of what it gives.

    Tasks and outcomes are msgspec's. Raises the first HootError that `work` raised, and JobFailed.
    """
    if not tasks:
        return []

    numbers = context(session).parallelize(range(len(tasks)), len(tasks))
    try:
        told = numbers.map(lambda number: _outcome(work, tasks[number])).collect()
    except (PySparkException, Py4JError) as error:
        raise JobFailed(f"Spark could not run the job: {str(error).strip()[:500]}") from error
    outcomes = [msgspec.msgpack.decode(one) for one in told]
    for code, text, _ in outcomes:
        if code:
            raise from_code(code, text)
    return [msgspec.convert(value, kind) for _, _, value in outcomes]


def _outcome(work: Callable[[T], R], task: T) -> bytes:
    """What `work` gives, or its error: as an error of a task it would reach the driver as a text with many lines."""
    try:
        return msgspec.msgpack.encode(("", "", work(task)))
    except HootError as error:
        return msgspec.msgpack.encode((error.code, error.message, None))
