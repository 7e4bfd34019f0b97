"""`hoot host …`: the region hosts that are registered, and emptying one.

The JSON form of a host is `{host, address, port, http_port, version, started, partitions, messages_per_second,
bytes_per_second, draining}`; its load is as the host told it a few seconds ago. `host info` adds `owned`: a list of
`{queue, partition, epoch}`. A host is named by its id, by the first letters of it, or by its host:port.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delivery.cli import options
from delivery.cli.output import NOTHING, Column, age, moment, number, show_fields, show_json, show_table, size, tell
from delivery.errors import DeadlineExceeded

if TYPE_CHECKING:
    from delivery.client import Client, OwnedBy
    from delivery.metastore.records import HostRecord

host_app = typer.Typer(help="Look at the region hosts, and empty one.")

HostName = Annotated[
    str, typer.Argument(metavar="HOST", help="Its id, the first letters of it, or its host:port.", show_default=False)
]
_DRAIN_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_TELL_SECONDS = 1.0


def add_to(app: typer.Typer) -> None:
    """Add the group of this module."""
    app.add_typer(host_app, name="host")


@host_app.command("list")
def list_hosts(zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT, as_json: options.AsJson = False) -> None:
    """List the live region hosts with their load."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        hosts = client.hosts()
    if as_json:
        show_json([host_fields(host) for host in hosts])
        return
    columns = [
        Column("host"), Column("address"), Column("http port", "right"), Column("version"), Column("started"),
        Column("partitions", "right"), Column("msg/s", "right"), Column("bytes/s", "right"), Column("state"),
    ]  # fmt: skip
    rows = [
        [
            host.host, host.host_port, str(host.http_port or NOTHING), host.version,
            age(host.started_ms), number(host.partitions), number(round(host.messages_per_second)),
            size(round(host.bytes_per_second)), _state(host),
        ]
        for host in hosts
    ]  # fmt: skip
    show_table(columns, rows)
    if not hosts:
        tell("no region host is registered: start one with `hoot serve`")


@host_app.command()
def info(
    name: HostName, zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT, as_json: options.AsJson = False
) -> None:
    """Show a host and the partitions that it owns."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.placement.host(name)
        owned = _owned(client, found)
    if as_json:
        fields = [{"queue": one.queue, "partition": one.partition, "epoch": one.epoch} for one in owned]
        show_json({**host_fields(found), "owned": fields})
        return
    show_fields([
        ("host", found.host),
        ("address", found.host_port),
        ("http port", str(found.http_port or NOTHING)),
        ("version", found.version),
        ("started", age(found.started_ms)),
        ("state", _state(found)),
        ("messages/s", number(round(found.messages_per_second))),
        ("bytes/s", size(round(found.bytes_per_second))),
        ("partitions", number(len(owned))),
    ])  # fmt: skip
    if owned:
        print()
        columns = [Column("queue"), Column("partition", "right"), Column("epoch", "right")]
        show_table(columns, [[one.queue, str(one.partition), str(one.epoch)] for one in owned])


@host_app.command()
def drain(
    name: HostName,
    undo: Annotated[bool, typer.Option("--undo", help="Let a draining host take partitions again.")] = False,
    timeout: Annotated[
        float | None, typer.Option(parser=options.parse_span, metavar="TIME", help="Wait so long.", show_default="1m")
    ] = None,
    dry_run: options.DryRun = False,
    zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Have a host give all its partitions to the others and take no new ones; then it may be stopped.

    Without another host that takes them it keeps them. With --json: {host, draining, partitions, left, seconds}.
    """
    from delivery.client import connect

    with connect(zookeeper) as client:
        found = client.placement.host(name)
        had = len(_owned(client, found))
        begun = time.monotonic()
        wait = _DRAIN_SECONDS if timeout is None else timeout
        left = had if dry_run else _drain(client, found, draining=not undo, seconds=wait, quiet=as_json)
    seconds = round(time.monotonic() - begun, 3)
    if as_json:
        draining = found.draining if dry_run else not undo
        fields = {"host": found.host, "draining": draining, "partitions": had, "left": left, "seconds": seconds}
        show_json(fields)
    elif undo:
        print(f"host {found.host} {'would take' if dry_run else 'takes'} partitions again")
    elif dry_run:
        print(f"host {found.host} would give away {had} partitions and take no new ones")
    else:
        print(f"host {found.host} gave away {had - left} partitions in {seconds:.1f} s; it can be stopped")


def host_fields(host: HostRecord) -> dict[str, Any]:
    """The JSON form of a host."""
    return {
        "host": host.host, "address": host.address, "port": host.port, "http_port": host.http_port,
        "version": host.version, "started": moment(host.started_ms), "partitions": host.partitions,
        "messages_per_second": host.messages_per_second, "bytes_per_second": host.bytes_per_second,
        "draining": host.draining,
    }  # fmt: skip


def _drain(client: Client, host: HostRecord, *, draining: bool, seconds: float, quiet: bool) -> int:
    """Begin and, when draining, wait until nothing is left, telling how far it is. Raises DeadlineExceeded."""
    end, told = time.monotonic() + seconds, time.monotonic()
    while (left := client.placement.drain(host, draining=draining)) and draining:
        if time.monotonic() > end:
            raise DeadlineExceeded(
                f"host {host.host} still has {left} partitions after {seconds:g} s and goes on giving them away; is"
                " there another host that takes them?"
            )
        if not quiet and time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            tell(f"{left} partitions left")
        time.sleep(_LOOK_SECONDS)
    return left


def _owned(client: Client, host: HostRecord) -> list[OwnedBy]:
    found = [one for queue in client.queues() for one in client.placement.owners(queue)]
    return [one for one in found if one.host is not None and one.host.host == host.host]


def _state(host: HostRecord) -> str:
    return "draining" if host.draining else "serving"
