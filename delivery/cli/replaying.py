"""`hoot subscription replay` and `promote`: a shadow of a subscription that delivers a stretch of the queue again.

The JSON form of a replay is `{queue, subscription, into, created, speed, messages, partitions}`, with `{partition,
after, until, messages}` per partition; `created` is false for a dry run, and `speed` null for as fast as it can be.
`promote` prints what `hoot subscription seek` prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm
from delivery.cli.output import Column, number, show_json, show_table
from delivery.cli.seeking import Force, show_moves, summary
from delivery.errors import InvalidRequest
from delivery.metastore.replays import MAX, Speed, check_speed

if TYPE_CHECKING:
    from delivery.client import Stretch

From = Annotated[
    str, typer.Option("--from", metavar="PLACE", show_default=False, help=f"The first: {options.PLACE_HELP}")
]
To = Annotated[str, typer.Option("--to", metavar="PLACE", help="As --from; messages from there on are left out.")]
Into = Annotated[
    str, typer.Option("--into", metavar="SHADOW", show_default=False, help="The subscription to make for it.")
]
SpeedOption = Annotated[
    str, typer.Option("--speed", metavar="SPEED", help="original, max, or how many times as fast as published.")
]
Shadow = Annotated[str, typer.Argument(metavar="SHADOW", help="The replay's name.", show_default=False)]


def replay(
    queue: options.QueueName,
    name: options.SubscriptionName,
    *,
    start: From,
    into: Into,
    to: To = "latest",
    speed: SpeedOption = "original",
    filter: options.Filter = None,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Make a shadow of a subscription that delivers what lies between two places again, and then ends."""
    from delivery.client import connect
    from delivery.filters import KEEP

    first, last, pace = options.place(start, "--from"), options.place(to, "--to"), _speed(speed)
    with connect(zookeeper) as client:
        stretches = client.replay(
            queue, name, into, start=first, end=last, speed=pace, filter=KEEP if filter is None else filter,
            dry_run=dry_run,
        )  # fmt: skip
    messages = sum(one.messages for one in stretches)
    if as_json:
        show_json({
            "queue": queue, "subscription": name, "into": into, "created": not dry_run,
            "speed": check_speed(pace) or None, "messages": messages, "partitions": [_fields(one) for one in stretches],
        })  # fmt: skip
        return
    columns = [Column(title, "right") for title in ("partition", "after", "until", "messages")]
    rows = [[str(one.partition), str(one.after), str(one.until), number(one.messages)] for one in stretches]
    show_table(columns, rows)
    made = "would create" if dry_run else "created"
    print(
        f"{made} subscription {into} of queue {queue}, which replays {number(messages)} messages of {name}{_at(pace)}"
    )


def promote(
    queue: options.QueueName,
    shadow: Shadow,
    *,
    dry_run: options.DryRun = False,
    force: Force = False,
    yes: options.Yes = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Put the subscription that SHADOW replays to where SHADOW stands, and delete SHADOW."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        name, moves = client.promote(queue, shadow, dry_run=True)
        if not dry_run:
            confirm(f"move subscription {name} of queue {queue} to where {shadow} stands, {summary(moves)}, and delete"
                    f" {shadow}", yes=yes)  # fmt: skip
            name, moves = client.promote(queue, shadow, force=force)
    show_moves(queue, name, moves, moved=not dry_run, as_json=as_json)


def _speed(text: str) -> Speed:
    try:
        speed: Speed = text if text in ("max", "original") else float(text)
        check_speed(speed)
    except (ValueError, InvalidRequest):
        raise typer.BadParameter(
            f"{text[:40]!r} is no speed: use original, max, or a number such as 2 or 0.5", param_hint="--speed"
        ) from None
    return speed


def _at(speed: Speed) -> str:
    times = check_speed(speed)
    return ", as fast as they are handled" if times == MAX else f", {times:g} times as fast as they were published"


def _fields(one: Stretch) -> dict[str, object]:
    return {
        "partition": one.partition, "after": str(one.after), "until": str(one.until), "messages": one.messages
    }  # fmt: skip
