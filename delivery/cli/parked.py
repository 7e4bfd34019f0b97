"""`hoot subscription parked` and `release`: the keys of a subscription that wait for a message that was not handled.

The JSON form of a parked key is `{partition, key, first, messages, failures, due, first_error, last_error}`: `key` is
null for a message without one, `first` the id of the message that is waited for, `due` when it is to come again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delivery.cli import options
from delivery.cli.formats import printable, text_or_base64
from delivery.cli.output import NOTHING, Column, moment, number, show_json, show_table, span, tell
from delivery.ids import MessageId

if TYPE_CHECKING:
    from delivery.metastore.managers.records import ParkedKey

Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help="Only this key; repeatable. Default: all.", show_default=False),
]


def parked(
    queue: options.QueueName,
    name: options.SubscriptionName,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """List the keys that wait for a message that was not handled (docs/retries.md), as they were saved last."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.parked(queue, name)
    if as_json:
        show_json([_fields(partition, one) for partition, one in found])
        return
    columns = [
        Column("partition", "right"), Column("key"), Column("waits for"), Column("messages", "right"),
        Column("failures", "right"), Column("due in", "right"), Column("last error"),
    ]  # fmt: skip
    show_table(columns, [_row(partition, one) for partition, one in found])
    if not found:
        tell(f"nothing of subscription {name} of queue {queue} is parked")


def release(
    queue: options.QueueName,
    name: options.SubscriptionName,
    *,
    keys: Keys = None,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Have parked keys come again now, whatever pause is left. With --json: {queue, subscription, released}."""
    from delivery.client import connect

    chosen = None if keys is None else frozenset(key.encode() for key in keys)
    with connect(zookeeper) as client:
        if dry_run:
            count = sum(chosen is None or one.key in chosen for _, one in client.parked(queue, name))
        else:
            count = client.release(queue, name, chosen)
    if as_json:
        show_json({"queue": queue, "subscription": name, "released": 0 if dry_run else count})
    else:
        print(f"{'would release' if dry_run else 'released'} {count} parked key{'' if count == 1 else 's'}")


def _fields(partition: int, one: ParkedKey) -> dict[str, Any]:
    return {
        "partition": partition,
        "key": text_or_base64(one.key),
        "first": str(MessageId(one.ids[0])),
        "messages": len(one.ids),
        "failures": one.failures,
        "due": moment(one.due_ms),
        "first_error": one.first_error,
        "last_error": one.last_error,
    }


def _row(partition: int, one: ParkedKey) -> list[str]:
    return [
        str(partition), NOTHING if one.key is None else printable(one.key), str(MessageId(one.ids[0])),
        number(len(one.ids)), number(one.failures), span(max(0.0, one.due_ms / 1000 - time.time())),
        printable(one.last_error.encode()),
    ]  # fmt: skip
