"""`hoot queue purge`: deleting what a data folder still holds of queues that are gone.

A host deletes the data of a queue when it hears of the queue's end. What ended while no host ran stays, and hosts only
tell of it: one that was pointed at the wrong ZooKeeper, or at one that lost its data, would find that no queue is there
at all. So it takes a person, and proof that this ZooKeeper is the folder's own.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm_by_word
from delivery.cli.output import Column, age, moment, show_json, show_table, size, tell
from delivery.errors import DataFolderError, ForeignData, InvalidRequest

if TYPE_CHECKING:
    from delivery.cluster.leftovers import Held
    from delivery.storage.log import SegmentedLog


_NAMED = 5
"""Queues that the question lists by name."""


class Leftover(NamedTuple):
    """The data of one generation of a queue that is gone."""

    queue: str
    generation: str
    bytes: int
    written_ms: int | None


def purge(
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUEUE", help="Only of these queues.", show_default="all that are gone"),
    ] = None,
    *,
    data: options.DataFolder = None,
    wiped: Annotated[
        bool,
        typer.Option(
            "--wiped",
            help="Also when none of the folder's queues is there: the metadata was wiped, or all were deleted.",
        ),
    ] = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Delete what a data folder still holds of queues that were deleted while no host ran. Hosts may run.

    Refuses with `foreign_data` when this ZooKeeper knows none of the folder's queues: it may be another cluster's. With
    --json: a list of {queue, generation, bytes, written, deleted}.
    """
    from delivery.metastore.catalog import open_catalog
    from delivery.metastore.zookeeper import ZooKeeperClient

    folder = options.data_folder(data)
    store = _store(folder)
    try:
        with ZooKeeperClient(zookeeper) as session, contextlib.closing(open_catalog(session)) as catalog:
            held = _held(store, catalog)
            if held.left and not (held.related or wiped):
                raise _foreign(folder, session.hosts, len(held.left))
        found = _wanted(store, held, queues or [])
        if found and not dry_run:
            confirm_by_word(_question(found, folder), "purge", yes=yes)
            for one in found:
                store.delete(one.queue, one.generation)
    finally:
        store.close()
    if as_json:
        show_json([_fields(one, deleted=not dry_run) for one in found])
    else:
        _show(found, folder, dry_run=dry_run)


def _store(folder: Path) -> SegmentedLog:
    from delivery.storage.log import SegmentedLog

    if not (folder / "layout.json").exists():  # opening it would make one
        raise DataFolderError(f"{folder} is no data folder of a region host")
    return SegmentedLog(folder)


def _held(store: SegmentedLog, catalog: Any) -> Held:  # noqa: ANN401 - a Catalog, which takes long to import
    """In this order: what the folder holds now has long been in ZooKeeper, and what is read there is not stale."""
    from delivery.cluster.leftovers import sort_out

    held = store.queues()
    catalog.catch_up()
    return sort_out(held, catalog)


def _wanted(store: SegmentedLog, held: Held, queues: list[str]) -> list[Leftover]:
    if foreign := sorted(set(queues) - {name for name, _ in held.left}):
        raise InvalidRequest(f"the folder holds nothing of a queue {foreign[0]!r} that is gone")
    left = [one for one in held.left if not queues or one[0] in queues]
    return [Leftover(*one, *store.usage(*one)) for one in left]


def _foreign(folder: Path, hosts: str, count: int) -> ForeignData:
    return ForeignData(
        f"{folder} holds data of {count} queues, and the ZooKeeper at {hosts} knows none of them: is it the one that"
        " the hosts of this folder use? If its metadata was wiped, or all queues were deleted, say --wiped"
    )


def _question(found: list[Leftover], folder: Path) -> str:
    names = [one.queue for one in found[:_NAMED]] + ["…"] * (len(found) > _NAMED)
    total = size(sum(one.bytes for one in found))
    return f"delete {total} of {len(found)} queues that are gone ({', '.join(names)}; see --dry-run) in {folder}"


def _show(found: list[Leftover], folder: Path, *, dry_run: bool) -> None:
    columns = [Column("queue"), Column("generation"), Column("size", "right"), Column("last written")]
    show_table(columns, [[one.queue, one.generation, size(one.bytes), age(one.written_ms)] for one in found])
    if not found:
        tell(f"{folder} holds nothing of queues that are gone")
    else:
        tell("this would be deleted" if dry_run else "this is deleted")


def _fields(one: Leftover, *, deleted: bool) -> dict[str, Any]:
    return {
        "queue": one.queue, "generation": one.generation, "bytes": one.bytes, "written": moment(one.written_ms),
        "deleted": deleted,
    }  # fmt: skip
