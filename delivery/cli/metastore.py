"""`hoot metastore …`: looking at the metadata entry by entry, and wiping it.

The JSON form of a table is `{table, ordered, entries}`, of an entry `{table, key, version, fields}`: the fields as they
are kept, or `{table, key, error}` for one that is damaged. The parts of a key stand apart by a slash.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm_by_word
from delivery.cli.output import NOTHING, Column, number, show_fields, show_json, show_table, tell
from delivery.errors import CorruptRecord

if TYPE_CHECKING:
    from delivery.metastore.inspecting import Inspector
    from delivery.metastore.tables.base import Found

metastore_app = typer.Typer(help="Look at the metadata, and wipe it.")

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="`hoot metastore tables` lists them.")]
_LIMIT = 100


def add_to(app: typer.Typer) -> None:
    """Add the group of this module."""
    app.add_typer(metastore_app, name="metastore")


@metastore_app.command("tables")
def list_tables(zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT, as_json: options.AsJson = False) -> None:
    """List the tables with the number of their entries."""
    with _inspecting(zookeeper) as inspector:
        found = [(name, ordered, inspector.count(name)) for name, ordered in inspector.tables()]
    if as_json:
        show_json([{"table": name, "ordered": ordered, "entries": count} for name, ordered, count in found])
        return
    rows = [[name, "by key" if ordered else NOTHING, number(count)] for name, ordered, count in found]
    show_table([Column("table"), Column("order"), Column("entries", "right")], rows)


@metastore_app.command("list")
def list_entries(
    table: TableName,
    start: Annotated[
        str | None, typer.Option("--from", metavar="KEY", help="Begin at this key.", show_default=False)
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="PREFIX", help="Only keys that begin so.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="At most so many.")] = _LIMIT,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """List entries of a table, in the order of their keys if it has one."""
    with _inspecting(zookeeper) as inspector:
        entries = inspector.entries(table, limit + 1, start, prefix)
    shown = entries[:limit]
    if as_json:
        show_json([_entry_fields(table, entry.key, entry.found) for entry in shown])
        return
    columns = [Column("key"), Column("version", "right"), Column("fields")]
    show_table(columns, [_row(entry.key, entry.found) for entry in shown])
    if len(entries) > limit:
        tell(f"there are more: see --limit, or go on with --from {entries[limit].key}")


@metastore_app.command()
def read(
    table: TableName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its parts stand apart by a slash.")],
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Show one entry."""
    from delivery.metastore.inspecting import fields_of, to_shown

    with _inspecting(zookeeper) as inspector:
        found = inspector.read(table, key)
    fields = fields_of(found)
    if as_json:
        show_json(_entry_fields(table, to_shown(key), found))
        return
    assert found is not None
    assert not isinstance(found, CorruptRecord)
    rows = [(name, json.dumps(value, ensure_ascii=False)) for name, value in fields.items()]
    show_fields([("key", to_shown(key)), ("version", str(found.version.number)), *rows])


@metastore_app.command("format")
def format_(
    yes: options.Yes = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Wipe all metadata: queues, owners, subscriptions and how far they have come. No host may run.

    What is stored of the queues stays in the data folders, and belongs to no queue any more. With --json: {formatted}.
    """
    from delivery.metastore.catalog import open_catalog
    from delivery.metastore.zookeeper import ZooKeeperClient

    with ZooKeeperClient(zookeeper) as session, contextlib.closing(open_catalog(session)) as catalog:
        catalog.check_at_rest()
        confirm_by_word(f"wipe all of Hoot's metadata in the ZooKeeper at {session.hosts}", "format", yes=yes)
        catalog.format()
    if as_json:
        show_json({"formatted": True})
    else:
        print("all metadata is gone; the next host that starts begins anew")


@contextmanager
def _inspecting(zookeeper: str) -> Iterator[Inspector]:
    from delivery.metastore.catalog import Catalog
    from delivery.metastore.inspecting import Inspector
    from delivery.metastore.placed import PlacedMetaStore
    from delivery.metastore.zookeeper import ZooKeeperClient

    with ZooKeeperClient(zookeeper) as session, contextlib.closing(PlacedMetaStore(session, session)) as store:
        yield Inspector(Catalog(session, store), store)


def _entry_fields(table: str, key: str, found: Found) -> dict[str, Any]:
    from delivery.metastore.inspecting import fields_of

    if found is None or isinstance(found, CorruptRecord):
        return {"table": table, "key": key, "error": "" if found is None else found.message}
    return {"table": table, "key": key, "version": found.version.number, "fields": fields_of(found)}


def _row(key: str, found: Found) -> list[str]:
    fields = _entry_fields("", key, found)
    if "error" in fields:
        return [key, NOTHING, fields["error"]]
    text = ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in fields["fields"].items())
    return [key, str(fields["version"]), text]
