"""`hoot queue …`. The JSON form of a queue is in `stored`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm
from delivery.cli.copying import copy
from delivery.cli.output import Column, number, show_json, show_table, tell
from delivery.cli.purging import purge
from delivery.cli.stored import info_fields, queue_fields, queue_row, show_queue
from delivery.model import Durability, Layout, QueueSettings

queue_app = typer.Typer(help="Create, list, show, change and delete queues.")

DurabilityOption = Annotated[
    Durability | None, typer.Option(help="What an acknowledged publish means: fsync, os or memory.", show_default=False)
]
ArchiveFirst = Annotated[
    bool | None,
    typer.Option(
        "--archive-first/--no-archive-first", show_default=False,
        help="Whether retention drops only what `hoot spark archive` has archived, for ever if nobody does that.",
    ),
]  # fmt: skip
Ttl = Annotated[
    str | None,
    typer.Option("--ttl", metavar="TIME", help="Drop older messages: 7d, 12h; none keeps them.", show_default=False),
]
Retention = Annotated[
    str | None,
    typer.Option(
        "--retention", metavar="SIZE", help="Keep so much per partition: 10GiB; none for all.", show_default=False
    ),
]
BacklogMessages = Annotated[
    str | None,
    typer.Option(
        metavar="N", show_default=False,
        help="Let publishers wait while a subscription has not acknowledged so many messages of a partition; or none.",
    ),
]  # fmt: skip
BacklogBytes = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="The same by what they take: 1GiB; or none.", show_default=False),
]
BodyLimit = Annotated[
    int | None, typer.Option(parser=options.parse_size, metavar="SIZE", help="The largest body.", show_default=False)
]


def add_to(app: typer.Typer) -> None:
    """Add the group of this module."""
    queue_app.command()(purge)
    queue_app.command()(copy)
    app.add_typer(queue_app, name="queue")


@queue_app.command()
def create(
    name: options.QueueName,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-n", metavar="N", help="1 to 32767; cannot be changed later.")
    ] = 1,
    durability: DurabilityOption = None,
    ttl: Ttl = None,
    retention: Retention = None,
    backlog_messages: BacklogMessages = None,
    backlog_bytes: BacklogBytes = None,
    body_limit: BodyLimit = None,
    archive_first: ArchiveFirst = None,
    layout: Annotated[
        Layout | None,
        typer.Option(help="In HBase: rows or batches; cannot be changed later.", show_default="as the hosts say"),
    ] = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Create a queue. Without options: one partition, fsync, messages are kept for ever."""
    from delivery.client import connect

    settings = _changes(durability, ttl, retention, body_limit, archive_first)
    settings |= _limits(backlog_messages, backlog_bytes)
    with connect(zookeeper) as client:
        client.create_queue(name, partitions=partitions, layout=layout, **settings)
        record = client.queue_record(name)
    if as_json:
        show_json(queue_fields(record))
    else:
        print(f"created queue {name} with {_partitions(record.settings)}, durability {record.settings.durability}")


@queue_app.command("list")
def list_queues(zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT, as_json: options.AsJson = False) -> None:
    """List the queues."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        records = client.queue_records()
    if as_json:
        show_json([queue_fields(record) for record in records])
        return
    columns = [
        Column("queue"), Column("partitions", "right"), Column("durability"), Column("ttl", "right"),
        Column("retention", "right"), Column("created"),
    ]  # fmt: skip
    show_table(columns, [queue_row(record) for record in records])
    if not records:
        tell("no queues yet: make one with `hoot queue create NAME`")


@queue_app.command()
def info(
    name: options.QueueName, zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT, as_json: options.AsJson = False
) -> None:
    """Show a queue: its settings, its subscriptions, and what each partition holds."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.queue_info(name)
    if as_json:
        show_json(info_fields(found))
        return
    show_queue(found)


@queue_app.command()
def update(
    name: options.QueueName,
    *,
    durability: DurabilityOption = None,
    ttl: Ttl = None,
    retention: Retention = None,
    backlog_messages: BacklogMessages = None,
    backlog_bytes: BacklogBytes = None,
    body_limit: BodyLimit = None,
    archive_first: ArchiveFirst = None,
    closed: Annotated[
        bool | None, typer.Option("--close/--open", help="Let nobody publish to it, or let them.", show_default=False)
    ] = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Change settings of a queue; what is not named stays. The number of partitions cannot be changed."""
    from delivery.client import connect

    changes = _changes(durability, ttl, retention, body_limit, archive_first)
    changes |= _limits(backlog_messages, backlog_bytes)
    if closed is not None:
        changes["closed"] = closed
    if not changes:
        raise typer.BadParameter("nothing to change: name at least one setting")
    with connect(zookeeper) as client:
        record = client.update_queue(name, **changes)
    if as_json:
        show_json(queue_fields(record))
    else:
        print(f"updated queue {name}")


@queue_app.command()
def delete(
    name: options.QueueName,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Delete a queue with its messages and its subscriptions. With --json: {queue, deleted, subscriptions}."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        subscriptions = client.subscriptions(name)
        if not dry_run:
            lost = f" and {len(subscriptions)} subscriptions" if subscriptions else ""
            confirm(f"delete queue {name} with all its messages{lost}", yes=yes)
            client.delete_queue(name)
    if as_json:
        show_json({"queue": name, "deleted": not dry_run, "subscriptions": subscriptions})
    else:
        verb = "would delete" if dry_run else "deleted"
        print(f"{verb} queue {name}{' and its subscriptions ' + ', '.join(subscriptions) if subscriptions else ''}")


def _changes(
    durability: Durability | None, ttl: str | None, retention: str | None, body_limit: int | None,
    archive_first: bool | None,
) -> dict[str, Any]:  # fmt: skip
    """The settings that were named; `none` takes a limit away."""
    changes: dict[str, Any] = {}
    if durability is not None:
        changes["durability"] = durability
    if ttl is not None:
        changes["ttl_seconds"] = None if ttl == "none" else options.parse_span(ttl)
    if retention is not None:
        changes["retention_bytes"] = None if retention == "none" else options.parse_size(retention)
    if body_limit is not None:
        changes["body_bytes_max"] = body_limit
    if archive_first is not None:
        changes["archive_first"] = archive_first
    return changes


def _limits(messages: str | None, size: str | None) -> dict[str, Any]:
    """Those of the backlog that were named."""
    limits: dict[str, Any] = {}
    if messages is not None:
        if messages != "none" and not messages.strip().isdecimal():
            raise typer.BadParameter(f"{messages[:40]!r} is no number of messages", param_hint="--backlog-messages")
        limits["backlog_messages"] = None if messages == "none" else int(messages)
    if size is not None:
        limits["backlog_bytes"] = None if size == "none" else options.parse_size(size)
    return limits


def _partitions(settings: QueueSettings) -> str:
    return "1 partition" if settings.partitions == 1 else f"{number(settings.partitions)} partitions"
