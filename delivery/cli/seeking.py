"""`hoot subscription seek`: moving a subscription to another place in its queue.

With --json: `{queue, subscription, moved, partitions}`, and per partition `{partition, before, after, messages,
parked}`; so many `messages` lie between the two places, and `parked` wait behind a message that was not handled.
`moved` is false for a dry run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm
from delivery.cli.output import Column, number, show_json, show_table

if TYPE_CHECKING:
    from delivery.client import Move

To = Annotated[str, typer.Option("--to", metavar="PLACE", show_default=False, help=options.PLACE_HELP)]
Force = Annotated[
    bool, typer.Option("--force", help="Also while a subscriber is attached; it goes on at the new place.")
]


def seek(
    queue: options.QueueName,
    name: options.SubscriptionName,
    *,
    to: To,
    partitions: options.Partitions = None,
    force: Force = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Move a subscription: backwards to hear messages again, forwards to skip them."""
    from delivery.client import connect

    place, numbers = options.place(to, "--to"), options.chosen(partitions)
    with connect(zookeeper) as client:
        moves = client.seek(queue, name, place, partitions=numbers, dry_run=True)
        if not dry_run:
            confirm(f"move subscription {name} of queue {queue}: {summary(moves)}", yes=yes)
            moves = client.seek(queue, name, place, partitions=numbers, force=force)
    show_moves(queue, name, moves, moved=not dry_run, as_json=as_json)


def show_moves(queue: str, name: str, moves: list[Move], *, moved: bool, as_json: bool) -> None:
    """What every command that moves a subscription says in the end, or would have done."""
    if as_json:
        fields = [
            {
                "partition": one.partition, "before": str(one.before), "after": str(one.after),
                "messages": one.messages, "parked": one.parked,
            }
            for one in moves
        ]  # fmt: skip
        show_json({"queue": queue, "subscription": name, "moved": moved, "partitions": fields})
        return
    columns = [Column("partition", "right"), Column("from", "right"), Column("to", "right"), Column("", "left")]
    show_table(columns, [[str(one.partition), str(one.before), str(one.after), _effect(one)] for one in moves])
    print(f"{'moved' if moved else 'would move'} subscription {name} of queue {queue}: {summary(moves)}")


def _effect(move: Move) -> str:
    parked = f", {number(move.parked)} parked" if move.parked else ""
    if move.before == move.after:
        return f"stays{parked}"
    return f"{number(move.messages)} {'again' if move.after < move.before else 'skipped'}{parked}"


def summary(moves: list[Move]) -> str:
    """What becomes of the messages between the places."""
    again = sum(one.messages for one in moves if one.after < one.before)
    skipped = sum(one.messages for one in moves if one.after > one.before)
    told = [f"{number(again)} messages come again"] if again else []
    if skipped:
        told.append(f"{number(skipped)}{'' if again else ' messages'} are skipped")
    return " and ".join(told) or "nothing lies between the places"
