"""`hoot spark replay` and `hoot spark compact`: from a queue into another one, to a subscription, or into a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm
from delivery.cli.spark import MASTER_DEFAULT, Master
from delivery.cli.spark.choosing import From, To, Where, chosen, lasting, run, show

if TYPE_CHECKING:
    from delivery.spark.jobs.compacting import Compacted
    from delivery.spark.jobs.storing import Partitions


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("replay")(replay)
    app.command("compact")(compact)


def replay(
    queue: options.QueueName,
    target: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", help="The queue to store them in.", show_default=False)
    ] = None,
    *,
    subscription: Annotated[
        str | None,
        typer.Option(
            "--to-subscription", metavar="NAME", show_default=False,
            help="Instead of TARGET: for the listeners of this subscription of QUEUE alone.",
        ),
    ] = None,
    start: From = "earliest",
    end: To = None,
    topics: options.Topics = None,
    filter: options.Filter = None,
    sql: Annotated[
        str,
        typer.Option(
            "--sql", metavar="QUERY", show_default="all as they are",
            help="What to store: \"select … from messages where …\", with the columns of a read.",
        ),
    ] = "",
    unordered: Annotated[
        bool, typer.Option("--unordered", help="The query gives no partition and offset to order its rows by.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", show_default="as fast as can be", help="Messages a second.")
    ] = None,
    partitions: Where = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Give each a header hoot-origin: QUEUE/PARTITION/ID.")
    ] = False,
    identity: Annotated[
        str,
        typer.Option("--id", metavar="TEXT", show_default="made of all this", help="Under one id each is stored once."),
    ] = "",
    master: Master = MASTER_DEFAULT,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:  # fmt: skip
    """Store the messages of a queue in another one, or for a subscription, filtered and changed by SQL.

    With --to-subscription those that the subscription takes: its subscribers that run hear them within half a minute,
    from the queue QUEUE.NAME.replay, which is made for it, each with a header hoot-origin. Run again with the same
    options, and the same --to, it stores nothing twice. With --json one object {queue, target, messages, until,
    partitions, dry_run}.
    """
    if (target is None) == (subscription is None):
        raise typer.BadParameter("name either a queue to store them in, or a subscription by --to-subscription")
    wanted = chosen(zookeeper, queue, start, end, topics, filter)
    from delivery.spark.jobs.replaying import Wishes, replay as replay_all, replay_to_subscription
    from delivery.spark.jobs.subscribed import as_subscribed

    if rate is not None and rate <= 0:
        raise typer.BadParameter("must be above 0", param_hint="--rate")
    wishes = Wishes(
        sql=sql, rate=rate or 0.0, partitions=cast("Partitions | None", partitions), unordered=unordered,
        origin=origin, identity=identity,
    )  # fmt: skip
    taken = wanted if subscription is None else as_subscribed(wanted, subscription)
    pinned = taken if dry_run else lasting(taken)
    job, to = (replay_all, target) if subscription is None else (replay_to_subscription, subscription)
    done = run(
        "replay", master,
        lambda session, bar: job(session, pinned, to or "", wishes, dry_run=dry_run, progress=bar),
    )  # fmt: skip
    show(done, as_json=as_json, dry_run=dry_run)


def compact(
    queue: options.QueueName,
    *,
    start: From = "earliest",
    end: To = None,
    topics: options.Topics = None,
    filter: options.Filter = None,
    folder: Annotated[
        str, typer.Option("--into-folder", metavar="FOLDER", show_default=False, help="As Parquet; made by this.")
    ] = "",
    target: Annotated[
        str, typer.Option("--into-queue", metavar="QUEUE", show_default=False, help="As messages of this queue.")
    ] = "",
    in_place: Annotated[
        bool, typer.Option("--in-place", help="As a new generation of QUEUE itself, without subscribers attached.")
    ] = False,
    yes: options.Yes = False,
    keep_empty: Annotated[
        bool, typer.Option("--keep-empty", help="An empty body is one like others, and does not delete its key.")
    ] = False,
    master: Master = MASTER_DEFAULT,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Keep the newest message of each key, and those without a key. One with an empty body deletes its key.

    With --in-place QUEUE holds nothing else afterwards: publishers are refused while the last of it is done, ids and
    positions of subscriptions stay, and a run that was broken off is gone on with by the next. With --json one object
    {queue, messages, kept, deleted, until, dry_run}.
    """
    wanted = chosen(zookeeper, queue, start, end, topics, filter)
    if in_place:
        if folder or target or (start, end) != ("earliest", None) or topics or filter:
            raise typer.BadParameter(
                "in place all of a queue is compacted: --in-place goes with no places and no choice"
            )
        if not dry_run:
            confirm(f"drop all but the newest message of each key of queue {queue}", yes=yes)
        show(_in_place(zookeeper, queue, master, keep_empty, dry_run), as_json=as_json, dry_run=dry_run)
        return
    from delivery.spark.jobs.compacting import Into, compact as compact_all

    into = Into(folder, target).checked(queue)
    pinned = wanted if dry_run or folder else lasting(wanted)
    done = run(
        "compact", master,
        lambda session, bar: compact_all(session, pinned, into, keep_empty=keep_empty, dry_run=dry_run, progress=bar),
    )  # fmt: skip
    show(done, as_json=as_json, dry_run=dry_run)


def _in_place(zookeeper: str, queue: str, master: str, keep_empty: bool, dry_run: bool) -> Compacted:
    from delivery.spark.jobs.renewing import compact_in_place

    return run(
        "compact", master,
        lambda session, bar: compact_in_place(
            session, zookeeper, queue, keep_empty=keep_empty, dry_run=dry_run, progress=bar
        ),
    )  # fmt: skip
