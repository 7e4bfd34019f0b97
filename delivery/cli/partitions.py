"""`hoot partition …`: who owns which partition, and moving one.

The JSON form of a partition is `{queue, partition, epoch, host, address}`, the last two null when nobody owns it now.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delivery.cli import options
from delivery.cli.output import NOTHING, Column, show_json, show_table, tell

if TYPE_CHECKING:
    from delivery.client import OwnedBy

partition_app = typer.Typer(help="See who owns which partition, and move one to another host.")


def add_to(app: typer.Typer) -> None:
    """Add the group of this module."""
    app.add_typer(partition_app, name="partition")


@partition_app.command("list")
def list_partitions(
    queue: options.OneQueue = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """List partitions with their owners. One that nobody has used yet has none: whoever asks for it first finds one."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        queues = client.queues() if queue is None else [queue]
        found = [one for name in queues for one in client.placement.owners(name)]
    if as_json:
        show_json([partition_fields(one) for one in found])
        return
    columns = [
        Column("queue"), Column("partition", "right"), Column("epoch", "right"), Column("host"), Column("address"),
    ]  # fmt: skip
    show_table(columns, [_row(one) for one in found])
    if not found:
        tell("no queues yet: `hoot queue create NAME` makes one")


@partition_app.command()
def move(
    queue: options.QueueName,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", help="Its number.", show_default=False)],
    host: Annotated[
        str,
        typer.Argument(
            metavar="HOST", help="Where to: a host's id, the first letters of it, or its host:port.", show_default=False
        ),
    ],
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Move a partition to a host; publishers and subscribers follow by themselves.

    Subscribers get again what they have not acknowledged at that moment. With --json: {queue, partition, from, to,
    moved, seconds}, `from` null when nobody owned it.
    """
    from delivery.client import connect

    with connect(zookeeper) as client:
        target = client.placement.check_target(client.placement.host(host))
        before = client.placement.owner(queue, partition)
        begun = time.monotonic()
        there = before.host is not None and before.host.host == target.host
        if not dry_run and not there:
            client.placement.move(queue, partition, target)
        seconds = round(time.monotonic() - begun, 3)
    origin = None if before.host is None else before.host.host
    if as_json:
        fields = {"queue": queue, "partition": partition, "from": origin, "to": target.host}
        show_json({**fields, "moved": not dry_run and not there, "seconds": seconds})
    elif there:
        print(f"{queue}/{partition} is on host {target.host} already")
    else:
        done = "would move" if dry_run else f"moved in {seconds * 1000:.0f} ms"
        print(f"{queue}/{partition} {done} from {origin or 'nobody'} to host {target.host}")


def partition_fields(one: OwnedBy) -> dict[str, Any]:
    """The JSON form of a partition."""
    return {
        "queue": one.queue,
        "partition": one.partition,
        "epoch": one.epoch,
        "host": None if one.host is None else one.host.host,
        "address": None if one.host is None else one.host.host_port,
    }


def _row(one: OwnedBy) -> list[str]:
    place = [NOTHING, NOTHING] if one.host is None else [one.host.host, one.host.host_port]
    return [one.queue, str(one.partition), str(one.epoch or NOTHING), *place]
