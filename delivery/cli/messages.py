"""`hoot publish`, `hoot scan` and `hoot subscribe`: messages in and out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from delivery.cli import options
from delivery.cli.formats import render
from delivery.cli.sources import source

Bodies = Annotated[
    list[str] | None, typer.Argument(metavar="MESSAGE", show_default=False, help="Bodies. None or -: standard input.")
]
BodyFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", show_default=False, help="Read from this file; -: standard input."),
]
Key = Annotated[str | None, typer.Option(help="Messages of one key are in one partition.", show_default=False)]
Headers = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Repeatable.", show_default=False)
]
OnePartition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, show_default="by key, else any", help="Publish to this one.")
]
Ids = Annotated[
    bool | None, typer.Option("--ids/--no-ids", show_default="for arguments", help="Print the id of each message.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        parser=options.parse_span, metavar="TIME", show_default="30s",
        help="How long a message may take to be stored, or wait for room in a full queue.",
    ),
]  # fmt: skip
Limit = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=0, metavar="N", show_default=False, help="Stop after so many messages."),
]
From = Annotated[str, typer.Option("--from", metavar="PLACE", help=options.PLACE_HELP)]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(publish)
    app.command()(scan)
    app.command()(subscribe)


def publish(
    queue: options.QueueName,
    messages: Bodies = None,
    *,
    file: BodyFile = None,
    whole: Annotated[bool, typer.Option("--whole", help="The whole file is one message, not each line.")] = False,
    key: Key = None,
    topic: Annotated[str, typer.Option(help="The label that subscribers can select by.", show_default=False)] = "",
    headers: Headers = None,
    partition: OnePartition = None,
    repeat: Annotated[int, typer.Option(min=1, max=1_000_000_000, help="Publish each message so many times.")] = 1,
    ids: Ids = None,
    timeout: Timeout = None,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Publish messages: the arguments, or each line of a file or of standard input.

    The command ends when all are stored, as the queue's durability says. Where one cannot be stored it stops there.
    It prints ids, or how many were stored; with --json one object {queue, messages, bytes, seconds, durability, ids},
    where ids is a list of {partition, id}, or null without --ids.
    """
    from delivery.cli.publishing import Load, Route, publish_all

    load = Load(source(messages or [], file, whole=whole), repeat, ids, timeout)
    route = Route(key, topic, dict(map(options.parse_header, headers or ())), partition)
    publish_all(zookeeper, queue, load, route, as_json=as_json)


def scan(
    queue: options.QueueName,
    *,
    partitions: options.Partitions = None,
    topics: options.Topics = None,
    filter: options.Filter = None,
    start: From = "earliest",
    end: Annotated[
        str | None, typer.Option("--to", metavar="PLACE", show_default="the end", help="Stop there; itself left out.")
    ] = None,
    limit: Limit = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is published later.")] = False,
    isolation: Annotated[
        str,
        typer.Option(
            "--isolation",
            metavar="ISOLATION",
            help="uncommitted (all that is stored) or committed (see docs/transactions.md).",
        ),
    ] = "uncommitted",
    form: options.Format = "text",
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: one object a line.")] = False,
) -> None:
    """Print the messages of a queue that are stored now; nothing is consumed.

    Messages of one partition come in order. With --isolation committed nothing comes that was rolled back, and what is
    in progress is the end of its partition: --follow waits for it. With --json each line is an object {queue,
    partition, id, time, topic, key, headers, body}; bytes that are not UTF-8 are {base64: …}.
    """
    from delivery.cli.scanning import Selection, scan_all

    if follow and end is not None:
        raise typer.BadParameter("--follow has no end, --to names one: give one of them")
    until = None if end is None else options.place(end, "--to")
    first = options.place(start, "--from")
    selection = Selection(options.chosen(partitions), _names(topics), filter, first, until, limit, isolation)
    scan_all(zookeeper, queue, selection, _form(form, as_json=as_json), follow=follow)


def subscribe(
    queue: options.QueueName,
    *,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", show_default="a new one, deleted at the end", help="Of the subscription."
        ),
    ] = None,
    partitions: options.Partitions = None,
    topics: options.Topics = None,
    filter: options.Filter = None,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=options.START_HELP + options.PLACE_HELP)
    ] = "latest",
    limit: Limit = None,
    kind: options.Kind = None,
    isolation: options.Isolation = None,
    member: Annotated[
        str | None, typer.Option("--member", metavar="NAME", show_default="a new one", help="Of this one in a group.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="DIR",
            show_default=False,
            help="Write down what was delivered when, for hoot spark audit.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Take the subscription over from another subscriber.")] = False,
    form: options.Format = "text",
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: one object a line.")] = False,
) -> None:
    """Receive messages as a subscriber, and print them until Ctrl-C.

    With --name the subscription is durable: the next `hoot subscribe` under that name goes on behind the last message
    that was printed, and --from counts only the first time; topics and filter stay until others are named. Without,
    the subscription is deleted at the end (if this program is killed, it stays; its name begins with `cli-`). A message
    counts as handled when it was printed. With --kind failover, shared or key_shared several may run under one --name.
    """
    from delivery.cli.subscribing import Subscribing
    from delivery.metastore.groups import check_kind
    from delivery.model import check_isolation

    first = options.first(start, "--from")
    wanted = Subscribing(
        queue, name, options.chosen(partitions), _names(topics), filter, first, limit, force,
        _form(form, as_json=as_json), None if kind is None else check_kind(kind), member, record,
        None if isolation is None else check_isolation(isolation),
    )  # fmt: skip
    wanted.run(zookeeper)


def _names(topics: Sequence[str] | None) -> tuple[str, ...] | None:
    return tuple(topics) if topics else None


def _form(form: str, *, as_json: bool) -> str:
    """The format to print in, checked. Raises typer.BadParameter."""
    render(form)
    return "json" if as_json else form
