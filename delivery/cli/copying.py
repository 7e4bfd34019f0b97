"""`hoot queue copy`: a queue to another one, which keeps ids, order and subscriptions; between stores, too.

The JSON form is `{source, target, messages, bytes, seconds, left, switched, subscriptions, partitions}`: what this run
brought, how many messages it left (with --dry-run: would bring), and the subscriptions that go along with a switch;
`partitions` is a list of `{partition, messages, bytes, last}`, empty for a dry run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm
from delivery.cli.output import number, show_json, size, span
from delivery.model import Layout

if TYPE_CHECKING:
    from delivery.client.copying import Advance, Brought, QueueCopy


class Outcome(NamedTuple):
    """What a run did."""

    target: str
    brought: list[Brought]
    """Empty for a dry run."""
    left: int
    seconds: float
    switched: bool


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The queue to copy.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="What to copy it to.", show_default=False)],
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="HOSTS", show_default="--zookeeper",
            help="ZooKeeper of the cluster that TARGET is in, such as one with another store.",
        ),
    ] = None,
    layout: Annotated[
        Layout | None, typer.Option(help="Of TARGET in HBase: rows or batches.", show_default="as the hosts say")
    ] = None,
    switch: Annotated[
        bool,
        typer.Option("--switch", help="Close SOURCE, bring the rest and the subscriptions, and open TARGET."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Switch while subscribers are attached to SOURCE.")] = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Copy a queue: every message with its id, key, headers and place in the order.

    SOURCE may be published to and delivered meanwhile, and the command may be said again, to bring what has come since
    or to go on where it broke off. TARGET takes no publishes until the switch, which ends the copying.
    """
    from delivery.client import connect

    with contextlib.ExitStack() as stack:
        here = stack.enter_context(connect(zookeeper))
        there = here if to is None else stack.enter_context(connect(to))
        work = here.copy_queue(source, there, target, layout=layout)
        messages, total = work.left()
        if switch and not dry_run:
            confirm(f"close queue {source} to publishers for good and go on with {target}", yes=yes)
        if dry_run:
            _show(work, Outcome(target, [], messages, 0.0, switched=False), as_json=as_json)
            return
        begun = time.monotonic()
        with _progress(total) as advance:
            brought = work.switch(advance, force=force) if switch else work.bring(advance)
        left = 0 if switch else work.left()[0]
        _show(work, Outcome(target, brought, left, time.monotonic() - begun, switched=switch), as_json=as_json)


def _show(work: QueueCopy, found: Outcome, *, as_json: bool) -> None:
    source, subscriptions = work.source.name, work.subscriptions()
    messages, bytes_ = sum(one.messages for one in found.brought), sum(one.bytes for one in found.brought)
    if as_json:
        show_json({
            "source": source, "target": found.target, "messages": messages, "bytes": bytes_,
            "seconds": round(found.seconds, 3), "left": found.left, "switched": found.switched,
            "subscriptions": subscriptions,
            "partitions": [
                {"partition": one.partition, "messages": one.messages, "bytes": one.bytes, "last": str(one.last)}
                for one in found.brought
            ],
        })  # fmt: skip
    elif not found.brought:
        print(f"would copy {number(found.left)} messages of queue {source} to {found.target}")
    else:
        print(f"copied {number(messages)} messages, {size(bytes_)}, in {span(found.seconds)}")
        if found.switched:
            print(f"queue {source} is closed, {found.target} is open, with {len(subscriptions)} subscriptions")
        else:
            print(f"{number(found.left)} messages have come since; --switch ends the copying")


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Advance]:
    """What hears of each piece, and draws a bar where somebody watches."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), TextColumn("{task.percentage:.0f} %"), TransferSpeedColumn(), TimeRemainingColumn())
    lock = threading.Lock()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("copy", total=total)

        def advance(_: int, bytes_: int) -> None:
            with lock:
                progress.advance(task, bytes_)

        yield advance
