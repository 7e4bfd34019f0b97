"""`hoot transaction …`: looking at transactions, and ending those that nobody ends.

The JSON form of a transaction is `{transaction, state, began, deadline}`: its write pointer, how it stands, and two
times, the second of which only one in progress has. `abort` and `invalidate` print it as it is afterwards, `prune`
`{pruned}`, the number of those that were forgotten, or would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm
from delivery.cli.output import Column, age, moment, show_fields, show_json, show_table, tell

if TYPE_CHECKING:
    from delivery.transactions.asks import Listed

transaction_app = typer.Typer(help="Look at transactions, and end those that nobody ends.")

Pointer = Annotated[
    int, typer.Argument(metavar="POINTER", help="The transaction's write pointer.", show_default=False)
]  # fmt: skip
Before = Annotated[
    str | None,
    typer.Option(
        "--before", metavar="TIME", show_default="those without messages",
        help="Forget all that began before this time (a time, or a time ago: -8d), whatever is left of their messages.",
    ),
]  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the group of this module."""
    app.add_typer(transaction_app, name="transaction")


@transaction_app.command("list")
def list_transactions(
    *,
    invalid: Annotated[bool, typer.Option("--invalid", help="Only those that are invalid.")] = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """List the transactions that are in progress or invalid, the oldest first."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = [one for one in client.transactions.all() if not invalid or one.standing == "invalid"]
    if as_json:
        show_json([_fields(one) for one in found])
        return
    columns = [Column("transaction", "right"), Column("state"), Column("began"), Column("deadline")]
    show_table(columns, [[str(one.pointer), one.standing, age(_began(one)), age(one.deadline_ms)] for one in found])
    if not found:
        tell("no transaction is in progress or invalid")


@transaction_app.command()
def info(
    pointer: Pointer,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Show how a transaction stands, or how it ended. The last 2048 that ended are remembered."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        _show(client.transactions.info(pointer), as_json=as_json)


@transaction_app.command()
def abort(
    pointer: Pointer,
    *,
    yes: options.Yes = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """End a transaction all of whose messages were rolled back; any that were not are seen as committed.

    Where you cannot tell, use `hoot transaction invalidate`.
    """
    what = f"abort transaction {pointer}, whose messages were all rolled back"
    _end(pointer, what, "abort", yes, zookeeper, as_json)


@transaction_app.command()
def invalidate(
    pointer: Pointer,
    *,
    yes: options.Yes = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """End a transaction so that nobody in a transaction ever sees its messages: readers stop at it no longer."""
    _end(
        pointer, f"invalidate transaction {pointer}, which can never commit then", "invalidate", yes, zookeeper, as_json
    )


@transaction_app.command()
def prune(
    *,
    before: Before = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Forget invalid transactions of which no message is stored any more, as hosts do by themselves now and then."""
    from delivery.client import connect

    before_ms = None if before is None else _time(before)
    with connect(zookeeper) as client:
        count = len(client.transactions.prunable(before_ms))
        if not dry_run:
            if before is not None:
                confirm(
                    f"forget {count} invalid transactions; what is left of their messages counts as committed", yes=yes
                )
            count = client.transactions.prune(before_ms)
    if as_json:
        show_json({"pruned": count})
    else:
        print(f"{count} invalid transactions {'would be' if dry_run else 'are'} forgotten")


def _end(
    pointer: int, what: str, how: Literal["abort", "invalidate"], yes: bool, zookeeper: str, as_json: bool
) -> None:  # fmt: skip
    from delivery.client import connect

    with connect(zookeeper) as client:
        manager = client.transactions
        manager.info(pointer)
        confirm(what, yes=yes)
        (manager.abort if how == "abort" else manager.invalidate)(pointer)
        _show(manager.info(pointer), as_json=as_json)


def _time(text: str) -> int:
    from datetime import datetime

    found = options.place(text, "--before")
    if not isinstance(found, datetime):
        raise typer.BadParameter(f"{text[:40]!r} is no time", param_hint="--before")
    return round(found.timestamp() * 1000)


def _began(one: Listed) -> int:
    from delivery.transactions.pointers import began_ms

    return began_ms(one.pointer)


def _fields(one: Listed) -> dict[str, Any]:
    return {
        "transaction": one.pointer, "state": one.standing, "began": moment(_began(one)),
        "deadline": moment(one.deadline_ms),
    }  # fmt: skip


def _show(one: Listed, *, as_json: bool) -> None:
    if as_json:
        show_json(_fields(one))
        return
    rows = [("transaction", str(one.pointer)), ("state", one.standing), ("began", age(_began(one)))]
    show_fields([*rows, ("deadline", age(one.deadline_ms))])
