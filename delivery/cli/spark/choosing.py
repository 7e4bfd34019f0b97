"""What the jobs of `hoot spark` share: which messages, and how a job runs and tells what it did."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from delivery.cli import options
from delivery.cli.output import field_lines, number, show_json, show_lines, tell

if TYPE_CHECKING:
    from delivery.spark.jobs.choosing import Chosen
    from delivery.spark.jobs.running import Progress

From = Annotated[str, typer.Option("--from", metavar="PLACE", help=options.PLACE_HELP)]
To = Annotated[
    str | None, typer.Option("--to", metavar="PLACE", show_default="the end", help="Stop there; itself left out.")
]
Where = Annotated[
    str | None,
    typer.Option(
        "--partitions", metavar="HOW", show_default="keep, if the queues have as many; else key",
        help="keep: to the partitions of the same numbers. key: where their keys belong, and without a key to any.",
    ),
]  # fmt: skip
T = TypeVar("T")


def chosen(
    zookeeper: str, queue: str, start: str, end: str | None, topics: Sequence[str] | None, rule: str | None
) -> Chosen:  # fmt: skip
    """Raises typer.BadParameter for a place that is none."""
    from delivery.spark.jobs.choosing import Chosen

    first, last = options.place(start, "--from"), "latest" if end is None else options.place(end, "--to")
    return Chosen(
        zookeeper=zookeeper, queue=queue, start=first, end=last, topics=tuple(topics or ()), filter=rule or ""
    )


def lasting(wanted: Chosen) -> Chosen:
    """With an end that is told before the job begins: run again up to there, it stores nothing twice."""
    from delivery.spark.jobs.choosing import with_end

    found = with_end(wanted)
    if wanted.end == "latest":
        tell(f"up to {found.end}: if this is broken off, run it again with --to {found.end}")
    return found


def run(name: str, master: str, job: Callable[[Any, Progress], T]) -> T:
    """Run a job with a session of Spark's and a bar; gives what it gives."""
    from delivery.spark.jobs.running import bar, session

    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")  # of newer libraries than it knows
    with bar(name) as progress, session(name, master) as made:
        made.sparkContext.setLogLevel("OFF")  # what fails is raised, and told in one line
        return job(made, progress)


def show(done: Any, *, as_json: bool, dry_run: bool) -> None:  # noqa: ANN401 - a record of any job
    """Print what a job did, or would do."""
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(done)
    if as_json:
        show_json({**fields, "dry_run": dry_run})
        return
    show_lines(field_lines([(name.replace("_", " "), _said(value)) for name, value in fields.items()]))
    if dry_run:
        tell("nothing was done: this is what would be")


def _said(value: object) -> str:
    return number(value) if isinstance(value, int) else str(value)
