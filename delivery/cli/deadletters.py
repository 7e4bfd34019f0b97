"""`hoot dlq …`: the messages that a subscription gave up.

The JSON form of a dead letter is `{id, time, queue, subscription, partition, message, reason, failures, crashes,
first_error, last_error, topic, key, headers, body}`: `id` is its own among the dead letters, `message` the id that it
had in its queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from delivery.cli import options
from delivery.cli.confirming import confirm
from delivery.cli.formats import printable, text_or_base64
from delivery.cli.output import NOTHING, Column, age, moment, show_fields, show_json, show_table, tell
from delivery.ids import MessageId

if TYPE_CHECKING:
    from delivery.client import DeadLetterQueue, StoredLetter

dlq_app = typer.Typer(help="Dead letters: messages that a subscription gave up.")

Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Its name.", show_default=False)]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="Only this dead letter; repeatable. Default: all.", show_default=False),
]


def add_to(app: typer.Typer) -> None:
    """Add the group of this module."""
    app.add_typer(dlq_app, name="dlq")


@dlq_app.command("list")
def list_letters(
    queue: options.QueueName,
    subscription: Subscription,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """List the dead letters of a subscription, oldest first."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.dead_letters(queue, subscription).letters()
    if as_json:
        show_json([letter_fields(one, subscription) for one in found])
        return
    columns = [
        Column("id"), Column("given up"), Column("partition", "right"), Column("message"),
        Column("failures", "right"), Column("reason"), Column("last error"),
    ]  # fmt: skip
    rows = [
        [
            str(one.id), age(one.id.timestamp_ms), one.told("partition"), one.told("id"), one.told("failures"),
            one.told("reason"), printable(one.told("last-error").encode()),
        ]
        for one in found
    ]  # fmt: skip
    show_table(columns, rows)
    _tell_if_none(found, queue, subscription)


@dlq_app.command()
def show(
    queue: options.QueueName,
    subscription: Subscription,
    ids: Ids = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Show dead letters whole: where they come from, why they were given up, and their bodies."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = _chosen(client.dead_letters(queue, subscription), ids)
    if as_json:
        show_json([letter_fields(one, subscription) for one in found])
        return
    for number, one in enumerate(found):
        if number:
            print()
        _show(one)
    _tell_if_none(found, queue, subscription)


@dlq_app.command()
def redrive(
    queue: options.QueueName,
    subscription: Subscription,
    *,
    ids: Ids = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Publish dead letters to their queue again, each to its partition, where all subscriptions get them.

    With --json: {queue, subscription, redriven, ids}, the ids those of the dead letters.
    """
    _settle(queue, subscription, ids, "redriven", (yes, dry_run, as_json), zookeeper)


@dlq_app.command()
def drop(
    queue: options.QueueName,
    subscription: Subscription,
    *,
    ids: Ids = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
) -> None:
    """Forget dead letters.

    With --json: {queue, subscription, dropped, ids}, the ids those of the dead letters.
    """
    _settle(queue, subscription, ids, "dropped", (yes, dry_run, as_json), zookeeper)


def letter_fields(letter: StoredLetter, subscription: str) -> dict[str, Any]:
    """The JSON form of a dead letter."""
    stored = letter.stored
    return {
        "id": str(letter.id),
        "time": moment(letter.id.timestamp_ms),
        "queue": letter.told("queue"),
        "subscription": subscription,
        "partition": int(letter.told("partition")),
        "message": letter.told("id"),
        "reason": letter.told("reason"),
        "failures": int(letter.told("failures")),
        "crashes": int(letter.told("crashes")),
        "first_error": letter.told("first-error"),
        "last_error": letter.told("last-error"),
        "topic": stored.topic or None,
        "key": text_or_base64(stored.key),
        "headers": {name: text_or_base64(value) for name, value in letter.headers.items()},
        "body": text_or_base64(stored.body),
    }


def _settle(
    queue: str, subscription: str, ids: list[str] | None, how: str, flags: tuple[bool, bool, bool], zookeeper: str
) -> None:  # fmt: skip
    from delivery.client import connect

    yes, dry_run, as_json = flags
    with connect(zookeeper) as client:
        letters = client.dead_letters(queue, subscription)
        found = _chosen(letters, ids)
        if found and not dry_run:
            verb = "publish again" if how == "redriven" else "forget"
            confirm(f"{verb} {_counted(found)} of subscription {subscription} of queue {queue}", yes=yes)
            (letters.redrive if how == "redriven" else letters.drop)(found)
    if as_json:
        done = not dry_run
        show_json({"queue": queue, "subscription": subscription, how: done, "ids": [str(one.id) for one in found]})
    else:
        print(f"{_counted(found)} {'would be ' if dry_run else ''}{how}")


def _counted(letters: list[StoredLetter]) -> str:
    return f"{len(letters)} dead letter{'' if len(letters) == 1 else 's'}"


def _tell_if_none(found: list[StoredLetter], queue: str, subscription: str) -> None:
    if not found:
        tell(f"subscription {subscription} of queue {queue} has no dead letters")


def _chosen(letters: DeadLetterQueue, ids: list[str] | None) -> list[StoredLetter]:
    """Those with the ids, or all. Raises typer.BadParameter for an id that none has."""
    found = letters.letters()
    if not ids:
        return found
    wanted = {MessageId.parse(text) for text in ids}
    if unknown := wanted - {one.id for one in found}:
        raise typer.BadParameter(f"there is no dead letter {min(unknown)}: `hoot dlq list` has them", param_hint="--id")
    return [one for one in found if one.id in wanted]


def _show(letter: StoredLetter) -> None:
    stored = letter.stored
    show_fields([
        ("id", str(letter.id)),
        ("given up", age(letter.id.timestamp_ms)),
        ("reason", letter.told("reason")),
        ("failures", letter.told("failures")),
        ("crashes", letter.told("crashes")),
        ("first error", printable(letter.told("first-error").encode())),
        ("last error", printable(letter.told("last-error").encode())),
        ("message", f"{letter.told('id')} of partition {letter.told('partition')}"),
        ("topic", stored.topic or NOTHING),
        ("key", NOTHING if stored.key is None else printable(stored.key)),
        *((f"header {name}", printable(value)) for name, value in letter.headers.items()),
        ("body", printable(stored.body)),
    ])  # fmt: skip
