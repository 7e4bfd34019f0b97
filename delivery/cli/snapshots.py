"""`hoot subscription snapshot …`: keeping where a subscription stands under a name, and going back there.

The JSON form of a snapshot is `{snapshot, taken, partitions}`, with `{partition, position, parked}` per partition:
`parked` messages up to the position wait behind one that was not handled. `create` and `show` print it with `{queue,
subscription}`, and `create` with `created`, which is false for a dry run; `list` prints an array of them, `delete`
`{queue, subscription, snapshot, deleted}`, and `restore` what `hoot subscription seek` prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm
from delivery.cli.output import Column, age, moment, number, show_json, show_table, tell
from delivery.cli.seeking import Force, show_moves, summary
from delivery.ids import MessageId

if TYPE_CHECKING:
    from delivery.metastore.managers.snapshots import SavedPosition, Snapshot

snapshot_app = typer.Typer(help="Keep where a subscription stands under a name, and go back there.")

SnapshotName = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The snapshot's name.", show_default=False)]


@snapshot_app.command()
def create(
    queue: options.QueueName,
    name: options.SubscriptionName,
    snapshot: SnapshotName,
    *,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Keep where a subscription stands, as it was saved last, with the keys that are parked."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.create_snapshot(queue, name, snapshot, dry_run=dry_run)
    if as_json:
        place = {"queue": queue, "subscription": name, "created": not dry_run}
        show_json({**place, **_fields(snapshot, found)})
        return
    _show(found)
    print(f"{'would create' if dry_run else 'created'} snapshot {snapshot} of subscription {name} of queue {queue}")


@snapshot_app.command("list")
def list_snapshots(
    queue: options.QueueName,
    name: options.SubscriptionName,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """List the snapshots of a subscription, the oldest first."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.snapshots(queue, name)
    if as_json:
        show_json([_fields(snapshot, one) for snapshot, one in found.items()])
        return
    columns = [Column("snapshot"), Column("taken"), Column("partitions", "right"), Column("parked", "right")]
    rows = [
        [snapshot, age(one.taken_ms), str(len(one.positions)), number(sum(map(_parked, one.positions.values())))]
        for snapshot, one in found.items()
    ]
    show_table(columns, rows)
    if not found:
        tell("no snapshots yet: `hoot subscription snapshot create QUEUE NAME SNAPSHOT` makes one")


@snapshot_app.command()
def show(
    queue: options.QueueName,
    name: options.SubscriptionName,
    snapshot: SnapshotName,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Show where the subscription stood when a snapshot was taken."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.snapshot(queue, name, snapshot)
    if as_json:
        show_json({"queue": queue, "subscription": name, **_fields(snapshot, found)})
        return
    _show(found)
    print(f"snapshot {snapshot} of subscription {name} of queue {queue}, taken {age(found.taken_ms)}")


@snapshot_app.command()
def delete(
    queue: options.QueueName,
    name: options.SubscriptionName,
    snapshot: SnapshotName,
    *,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Forget a snapshot; the subscription stays where it is."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        client.snapshot(queue, name, snapshot)
        if not dry_run:
            confirm(f"delete snapshot {snapshot} of subscription {name} of queue {queue}", yes=yes)
            client.delete_snapshot(queue, name, snapshot)
    if as_json:
        show_json({"queue": queue, "subscription": name, "snapshot": snapshot, "deleted": not dry_run})
    else:
        print(f"{'would delete' if dry_run else 'deleted'} snapshot {snapshot} of subscription {name} of queue {queue}")


@snapshot_app.command()
def restore(
    queue: options.QueueName,
    name: options.SubscriptionName,
    snapshot: SnapshotName,
    *,
    force: Force = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Move a subscription to where it stood; what was parked then is parked again, and comes first."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        moves = client.restore_snapshot(queue, name, snapshot, dry_run=True)
        if not dry_run:
            confirm(f"restore snapshot {snapshot} of subscription {name} of queue {queue}: {summary(moves)}", yes=yes)
            moves = client.restore_snapshot(queue, name, snapshot, force=force)
    show_moves(queue, name, moves, moved=not dry_run, as_json=as_json)


def _parked(saved: SavedPosition) -> int:
    return sum(len(one.ids) for one in saved.parked)


def _fields(snapshot: str, found: Snapshot) -> dict[str, Any]:
    partitions = [
        {"partition": partition, "position": str(MessageId(one.position)), "parked": _parked(one)}
        for partition, one in sorted(found.positions.items())
    ]
    return {"snapshot": snapshot, "taken": moment(found.taken_ms), "partitions": partitions}


def _show(found: Snapshot) -> None:
    columns = [Column("partition", "right"), Column("position", "right"), Column("parked", "right")]
    rows = [
        [str(partition), str(MessageId(one.position)), number(_parked(one))]
        for partition, one in sorted(found.positions.items())
    ]
    show_table(columns, rows)
