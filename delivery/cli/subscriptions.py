"""`hoot subscription …`: making subscriptions, and who has got how far.

The JSON form of a subscription is `{queue, subscription, created, all_partitions, topics, filter, kind, bound,
listener, members, retry, replay, lag, lag_seconds, parked}` with the filter as a rule, null without one, and the
listener as `host:port`, null when none is attached, or those who are are members: `{member, listener, partitions}`,
where the listener is null for one that is gone; `retry` has the fields of a RetryPolicy, and `replay` is `{of,
finished}`, null for what is none. `lag` counts messages, `lag_seconds` is the age of the oldest of them that is not
acknowledged, and `parked` counts those that neither of them means. `subscription info` adds `partitions`: per
partition `{partition, start, position, end, lag, lag_seconds, parked, host, member}`. Numbers that cannot be had now
(its host does not answer) are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from delivery.cli import options, retrying
from delivery.cli.confirming import confirm
from delivery.cli.filtering import explain, update
from delivery.cli.members import show_members
from delivery.cli.output import NOTHING, Column, age, moment, number, show_fields, show_json, show_table, span, tell
from delivery.cli.parked import parked, release
from delivery.cli.replaying import promote, replay
from delivery.cli.seeking import seek
from delivery.cli.snapshots import snapshot_app
from delivery.ids import MessageId

if TYPE_CHECKING:
    from delivery.client import SubscribedPartition, SubscriptionInfo

subscription_app = typer.Typer(help="Create, list, show, change, move and delete subscriptions.")


def add_to(app: typer.Typer) -> None:
    """Add the group of this module."""
    for command in (seek, replay, promote, update, explain, parked, release):
        subscription_app.command()(command)
    subscription_app.add_typer(snapshot_app, name="snapshot")
    app.add_typer(subscription_app, name="subscription")


@subscription_app.command()
def create(
    queue: options.QueueName,
    name: options.SubscriptionName,
    *,
    partitions: options.Partitions = None,
    topics: options.Topics = None,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=options.START_HELP + options.PLACE_HELP)
    ] = "latest",
    kind: options.Kind = None,
    bound: options.Bound = None,
    retry: retrying.Retry = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Create a subscription before anybody is attached to it: messages from its start on wait for who comes.

    With --json: {queue, subscription, created, all_partitions, topics, kind, starts, retry}, where starts are the ids
    behind which the partitions begin.
    """
    from delivery.client import connect
    from delivery.metastore.groups import check_kind

    first, chosen = options.first(start, "--from"), options.chosen(partitions)
    with connect(zookeeper) as client:
        record = client.create_subscription(
            queue, name, partitions=chosen, topics=topics or None, start=first, retry=retrying.asked(retry),
            kind=check_kind(kind or "exclusive"), bound=bound or 0,
        )  # fmt: skip
    if as_json:
        show_json({
            "queue": queue, "subscription": name, "created": moment(record.created_ms),
            "all_partitions": record.all_partitions, "topics": list(record.topics), "kind": record.kind,
            "starts": {str(number): str(MessageId(one)) for number, one in sorted(record.starts.items())},
            "retry": msgspec.structs.asdict(record.retry),
        })  # fmt: skip
    else:
        print(f"created subscription {name} of queue {queue}, partitions: {len(record.starts)}")


@subscription_app.command("list")
def list_subscriptions(
    queue: options.OneQueue = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """List subscriptions with their lag: messages published and not yet acknowledged."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        queues = client.queues() if queue is None else [queue]
        found = [client.subscription_info(one, name) for one in queues for name in client.subscriptions(one)]
    if as_json:
        show_json([summary_fields(one) for one in found])
        return
    columns = [
        Column("queue"), Column("subscription"), Column("partitions", "right"), Column("topics"), Column("kind"),
        Column("attached"),
        Column("lag", "right"), Column("behind", "right"),
    ]  # fmt: skip
    show_table(columns, [_row(one) for one in found])
    if not found:
        tell("no subscriptions yet: `hoot subscription create QUEUE NAME` makes one, as every subscriber does")


@subscription_app.command()
def info(
    queue: options.QueueName,
    name: options.SubscriptionName,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Show a subscription: per partition its position, the end of the partition, and the lag between them."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.subscription_info(queue, name)
    if as_json:
        show_json({
            **summary_fields(found),
            "partitions": [
                {**_partition_fields(one), "member": found.holders.get(one.partition)} for one in found.partitions
            ],
        })  # fmt: skip
        return
    show_fields([
        ("subscription", name),
        ("queue", queue),
        ("created", age(found.created_ms)),
        ("topics", ", ".join(found.topics) or "all"),
        ("filter", found.filter or "none"),
        ("kind", found.kind),
        *([("bound", f"the newest {number(found.bound)} messages of a partition")] if found.bound else []),
        *([("listener", found.listener or "none is attached")] if found.kind == "exclusive" else []),
        ("not handled", retrying.described(found.retry)),
        *([("replay", f"of {found.replay.of}, {'finished' if found.finished else 'not finished'}")]
          if found.replay else []),
    ])  # fmt: skip
    print()
    if found.kind != "exclusive":
        show_members(found)
    columns = [
        Column("partition", "right"), Column("position", "right"), Column("end", "right"),
        Column("lag", "right"), Column("behind", "right"), Column("parked", "right"), Column("host"),
        *([Column("member")] if found.members else []),
    ]  # fmt: skip
    rows = [
        [
            str(one.partition), _id(one.position), _id(one.end), number(one.lag), span(one.lag_seconds),
            number(one.parked), one.host or NOTHING,
            *([found.holders.get(one.partition, NOTHING)] if found.members else []),
        ]
        for one in found.partitions
    ]  # fmt: skip
    ends = [""] * (len(columns) - 6)
    total = ["total", "", "", number(found.lag), span(found.lag_seconds), number(found.parked), *ends]
    show_table(columns, rows, total=total if len(rows) > 1 else None)


@subscription_app.command()
def delete(
    queue: options.QueueName,
    name: options.SubscriptionName,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Delete a subscription and its position; an attached subscriber gets nothing more.

    With --json: {queue, subscription, deleted, listener}.
    """
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.subscription_info(queue, name)
        if not dry_run:
            attached = f", to which {', '.join(found.attached)} is attached" if found.attached else ""
            confirm(f"delete subscription {name} of queue {queue} and its position{attached}", yes=yes)
            client.delete_subscription(queue, name)
    if as_json:
        show_json({"queue": queue, "subscription": name, "deleted": not dry_run, "listener": found.listener})
    else:
        print(f"{'would delete' if dry_run else 'deleted'} subscription {name} of queue {queue}")


def summary_fields(found: SubscriptionInfo) -> dict[str, Any]:
    """The JSON form of a subscription without its partitions."""
    return {
        "queue": found.queue,
        "subscription": found.subscription,
        "created": moment(found.created_ms),
        "all_partitions": found.all_partitions,
        "topics": list(found.topics),
        "filter": None if found.filter is None else msgspec.json.decode(found.filter),
        "kind": found.kind,
        "bound": found.bound,
        "listener": found.listener,
        "members": [msgspec.structs.asdict(one) for one in found.members],
        "retry": msgspec.structs.asdict(found.retry),
        "replay": None if found.replay is None else {"of": found.replay.of, "finished": found.finished},
        "lag": found.lag,
        "lag_seconds": _rounded(found.lag_seconds),
        "parked": found.parked,
    }


def _partition_fields(one: SubscribedPartition) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "start": str(one.start),
        "position": str(one.position),
        "end": None if one.end is None else str(one.end),
        "lag": one.lag,
        "lag_seconds": _rounded(one.lag_seconds),
        "parked": one.parked,
        "host": one.host,
    }


def _row(found: SubscriptionInfo) -> list[str]:
    partitions = "all" if found.all_partitions else str(len(found.partitions))
    topics = ", ".join(found.topics) or "all"
    progress = [number(found.lag), span(found.lag_seconds)]
    attached = found.listener or NOTHING
    if found.kind != "exclusive":
        attached = f"{len(found.attached)} members"
    return [found.queue, found.subscription, partitions, topics, found.kind, attached, *progress]


def _id(message_id: MessageId | None) -> str:
    return str(message_id) if message_id else NOTHING


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
