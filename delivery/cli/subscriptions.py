"""`hoot subscription …`: making subscriptions, and who has got how far.

The JSON form of a subscription is `{queue, subscription, created, all_partitions, topics, filter, kind, bound,
isolation, listener, members, retry, replay, pause, flow, lag, lag_seconds, parked, verdict}` with the filter as a
rule, null without one, and the listener as `host:port`, null when none is attached, or those who are are members:
`{member, listener, partitions, shares}`, where the listener is null for one that is gone, and `shares` has its part of
the keys of each partition that members share; `retry` has the fields of a RetryPolicy,
`replay` is `{of, finished}`, null for what is none, `pause` is `{since, until}`, null when it is not paused, and `flow`
has the fields of a Flow, 0 for no limit. `lag` counts messages, `lag_seconds` is the age of the oldest of them that is
not acknowledged, and `parked` counts those that neither of them means; `verdict` is that of the worst partition,
`{name, level, since, text, partition}`. `subscription info` adds `partitions`: per partition `{partition, start,
position, end, lag, lag_bytes, lag_seconds, trend, out, redelivered, parked, delivered, acknowledged, checkpointed,
host, member, verdict, callback}`, which docs/verdicts.md explains. Numbers that cannot be had now (its host does not
answer) are null. With `--watch` there is a document in each line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from delivery.cli import flowing, options, retrying
from delivery.cli.checking import Check, check
from delivery.cli.confirming import confirm
from delivery.cli.filtering import explain, rule, update
from delivery.cli.output import json_line, moment, show_json, show_lines, tell
from delivery.cli.parked import parked, release
from delivery.cli.pausing import pause, resume
from delivery.cli.replaying import promote, replay
from delivery.cli.seeking import seek
from delivery.cli.snapshots import snapshot_app
from delivery.cli.verdicts import info_fields, info_lines, limits, list_fields, list_lines
from delivery.cli.watching import Watch, watching
from delivery.ids import MessageId

if TYPE_CHECKING:
    from delivery.client import SubscriptionInfo

subscription_app = typer.Typer(help="Create, list, show, change, move and delete subscriptions.")


def add_to(app: typer.Typer) -> None:
    """Add the group of this module, and `hoot check`."""
    for command in (seek, replay, promote, update, explain, pause, resume, parked, release):
        subscription_app.command()(command)
    subscription_app.add_typer(snapshot_app, name="snapshot")
    app.add_typer(subscription_app, name="subscription")
    app.command("check", cls=Check)(check)


@subscription_app.command()
def create(
    queue: options.QueueName,
    name: options.SubscriptionName,
    *,
    partitions: options.Partitions = None,
    topics: options.Topics = None,
    filter: options.Filter = None,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=options.START_HELP + options.PLACE_HELP)
    ] = "latest",
    kind: options.Kind = None,
    bound: options.Bound = None,
    isolation: options.Isolation = None,
    retry: retrying.Retry = None,
    messages_per_second: flowing.MessagesPerSecond = None,
    bytes_per_second: flowing.BytesPerSecond = None,
    window_messages: flowing.WindowMessages = None,
    window_bytes: flowing.WindowBytes = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Create a subscription before anybody is attached to it: messages from its start on wait for who comes.

    With --json: {queue, subscription, created, all_partitions, topics, filter, kind, isolation, starts, retry}, where
    starts are the ids behind which the partitions begin.
    """
    from delivery.client import connect
    from delivery.metastore.groups import check_kind
    from delivery.model import check_isolation

    first, chosen = options.first(start, "--from"), options.chosen(partitions)
    flow = flowing.given(
        messages_per_second=messages_per_second, bytes_per_second=bytes_per_second, window_messages=window_messages,
        window_bytes=window_bytes,
    )  # fmt: skip
    with connect(zookeeper) as client:
        record = client.create_subscription(
            queue, name, partitions=chosen, topics=topics or None, filter=filter, start=first,
            retry=retrying.asked(retry), kind=check_kind(kind or "exclusive"), bound=bound or 0, flow=flow,
            isolation=check_isolation(isolation or "uncommitted"),
        )  # fmt: skip
    if as_json:
        show_json({
            "queue": queue, "subscription": name, "created": moment(record.created_ms),
            "all_partitions": record.all_partitions, "topics": list(record.topics), "filter": rule(record.filter),
            "kind": record.kind, "isolation": record.isolation,
            "starts": {str(number): str(MessageId(one)) for number, one in sorted(record.starts.items())},
            "retry": msgspec.structs.asdict(record.retry),
        })  # fmt: skip
    else:
        print(f"created subscription {name} of queue {queue}, partitions: {len(record.starts)}")


@subscription_app.command("list")
def list_subscriptions(
    queue: options.OneQueue = None,
    watch: Watch = False,
    stuck_after: options.StuckAfter = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """List subscriptions with their lag, messages published and not yet acknowledged, and why they do what they do."""
    from delivery.client import connect

    with connect(zookeeper) as client:

        def look() -> list[SubscriptionInfo]:
            return client.subscription_infos(queue, limits=limits(stuck_after))

        if watch:
            watching(look, lambda found: [json_line(list_fields(found))] if as_json else list_lines(found))
        found = look()
    if as_json:
        show_json(list_fields(found))
        return
    show_lines(list_lines(found))
    if not found:
        tell("no subscriptions yet: `hoot subscription create QUEUE NAME` makes one, as every subscriber does")


@subscription_app.command()
def info(
    queue: options.QueueName,
    name: options.SubscriptionName,
    watch: Watch = False,
    stuck_after: options.StuckAfter = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Show a subscription: per partition how far it is, and why it does what it does."""
    from delivery.client import connect

    with connect(zookeeper) as client:

        def look() -> SubscriptionInfo:
            return client.subscription_info(queue, name, limits(stuck_after))

        if watch:
            watching(look, lambda found: [json_line(info_fields(found))] if as_json else info_lines(found))
        found = look()
    if as_json:
        show_json(info_fields(found))
    else:
        show_lines(info_lines(found))


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
