"""`hoot host …`: the region hosts that are registered."""

from __future__ import annotations

import typer

from delivery.cli import options
from delivery.cli.output import NOTHING, Column, age, moment, show_json, show_table, tell

host_app = typer.Typer(help="Look at the region hosts.")


@host_app.callback()
def host() -> None:
    """Look at the region hosts."""


def add_to(app: typer.Typer) -> None:
    """Add the group of this module."""
    app.add_typer(host_app, name="host")


@host_app.command("list")
def list_hosts(zookeeper: options.ZooKeeper = options.ZOOKEEPER_DEFAULT, as_json: options.AsJson = False) -> None:
    """List the live region hosts. With --json: a list of {host, address, port, http_port, version, started}."""
    from delivery.client import connect

    with connect(zookeeper) as client:
        hosts = client.hosts()
    if as_json:
        show_json([
            {
                "host": host.host, "address": host.address, "port": host.port, "http_port": host.http_port,
                "version": host.version, "started": moment(host.started_ms),
            }
            for host in hosts
        ])  # fmt: skip
        return
    columns = [Column("host"), Column("address"), Column("http port", "right"), Column("version"), Column("started")]
    rows = [
        [host.host, f"{host.address}:{host.port}", str(host.http_port or NOTHING), host.version, age(host.started_ms)]
        for host in hosts
    ]
    show_table(columns, rows)
    if not hosts:
        tell("no region host is registered: start one with `hoot serve`")
