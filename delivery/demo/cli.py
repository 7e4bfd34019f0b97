"""The command `hoot demo`."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer


def demo(
    events: Annotated[
        int | None,
        typer.Option(
            "--events", "-n", min=1, help="Only the first N flights in date order.", show_default="all 336,776"
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demo's folder, and say how to look at it.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, for programs.")] = False,
) -> None:
    """A year of departures from New York through Hoot, with a subscriber and a region host killed on the way.

    336,776 flights are published in date order to a queue of four partitions and received by three subscriptions in
    another process. In the middle that process and the region host are killed with -9 and started again. Then Spark
    archives the queue, the live log is dropped where it is archived, one carrier is replayed into a new subscription,
    and an audit is made. The callbacks are held against what was published and, per carrier, against Spark and the
    file, and so is each step after them. Exit status 1 when anything differs. Needs the extra `demo`.
    """
    from delivery.demo import extras

    extras.check()
    from delivery.demo.crew import DemoFailed
    from delivery.demo.flights import load
    from delivery.demo.show import Screen, show
    from delivery.demo.story import Demo

    screen = Screen()
    with _ended_by_signals(), _folder(keep=keep) as folder:
        screen.say("reading the flights")
        report = Demo(load(events), folder, screen).tell()
    if json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        show(report)
    if report.differences:
        raise DemoFailed(f"what was delivered differs from what was published: {report.differences[0]}")


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """A new folder, removed at the end unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="hoot-demo-"))
    try:
        yield folder
    finally:
        if keep:
            _explain(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _explain(folder: Path) -> None:
    """How to look at what the demo left."""
    path = shlex.quote(str(folder))
    embedded = " --embedded" if "HOOT_ZOOKEEPER" in os.environ else ""
    text = f"""
The demo's folder is kept: {folder}
To look at it, start the engine on it again:
  hoot serve{embedded} --data {path}
and then, in another terminal, for instance:
  hoot queue info flights
  hoot subscription list
  hoot scan flights --topic JFK --limit 5
{_of_audit(folder)}Remove it with: rm -r {path}"""
    print(text, file=sys.stderr)


def _of_audit(folder: Path) -> str:
    from delivery.demo.pipeline import AUDIT

    report = folder / AUDIT / "report.html"
    return f"The audit's report: {report}\n" if report.exists() else ""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: every process it started is ended, its folder removed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
