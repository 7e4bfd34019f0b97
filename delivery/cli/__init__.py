"""The command line `hoot`: one module per group of commands, and the root that joins them.

    serve.py           hoot serve, hoot zookeeper
    queues.py          hoot queue …
    messages.py        hoot publish, hoot scan, hoot subscribe
    subscriptions.py   hoot subscription …
    checking.py        hoot check
    deadletters.py     hoot dlq …
    hosts.py           hoot host …
    partitions.py      hoot partition …
    metastore.py       hoot metastore …
    transactions.py    hoot transaction …
    spark              hoot spark …

A module is imported, and its commands are made, when one of them is asked for; so are those of `hoot bench` and
`hoot demo`, which are commands of their packages. Everything slow to import (ZooKeeper's client, trio, rich) is
imported inside the commands, so that `hoot --help` and shell completion answer at once.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from delivery.cli.errors import FAILED, PipeClosed, report
from delivery.cli.streams import flush_output, let_output_go, open_streams

_HERE = {
    "serve": "serve", "zookeeper": "serve",
    "publish": "messages", "scan": "messages", "subscribe": "messages",
    "queue": "queues", "subscription": "subscriptions", "check": "subscriptions", "dlq": "deadletters",
    "host": "hosts", "partition": "partitions", "metastore": "metastore", "transaction": "transactions",
    "spark": "spark",
}  # fmt: skip
"""Which module of this package brings a command, in the order of the help."""

_ELSEWHERE = ("bench", "demo")
"""Commands that a package `delivery.<name>` brings: its module `cli` has a function or a typer app of that name."""


class Root(TyperGroup):
    """The root of the commands; finds them when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - typer does not export the types
        """All commands in the order of the help."""
        found = [name for name in _ELSEWHERE if importlib.util.find_spec(f"delivery.{name}") is not None]
        return ["version", *_HERE, *found]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        """The command of that name, None when there is none."""
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            found = _from_here(_HERE[cmd_name]) if cmd_name in _HERE else {cmd_name: _from_elsewhere(cmd_name)}
            self.commands.update(found)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Run the command; a reader of our output that went away is told from other failures of the system."""
        try:
            result = super().invoke(ctx)
            flush_output()
        except BrokenPipeError as error:
            raise PipeClosed from error
        return result


@cache
def _from_here(module: str) -> dict[str, Any]:
    joined = typer.Typer(add_completion=False)
    importlib.import_module(f"delivery.cli.{module}").add_to(joined)
    group: Any = get_command(joined)
    commands: dict[str, Any] = group.commands
    return commands


def _from_elsewhere(name: str) -> Any:  # noqa: ANN401 - as above
    command = getattr(importlib.import_module(f"delivery.{name}.cli"), name)
    if isinstance(command, typer.Typer):
        group = get_command(command)
        group.name = name  # which the help shows, whatever it was asked for by
        return group
    alone = typer.Typer(add_completion=False)
    alone.command(name)(command)
    return get_command(alone)


app = typer.Typer(
    name="hoot", cls=Root, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)


def _version(value: bool) -> None:
    if value:
        version()
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", envvar="HOOT_DEBUG", help="Show where an error happened.")] = False,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Hoot delivers events: durable queues, push to subscribers, checkpoints in ZooKeeper.

    A first try: `hoot serve` in one terminal; then `hoot queue create greetings`, `hoot publish greetings hello` and
    `hoot subscribe greetings --from earliest` in another.

    Exit status: 0 fine, 1 failed, 2 bad use.
    """
    ctx.ensure_object(dict)["debug"] = debug
    # What matters to the user of a short command is raised; the long-running ones set up their own logging.
    logging.basicConfig(level=logging.DEBUG) if debug else logging.getLogger().addHandler(logging.NullHandler())


@app.command()
def version() -> None:
    """Print the version."""
    from delivery.config import software_version

    print(f"hoot {software_version()}")


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: run the command that the arguments (the process's own by default) ask for, and exit."""
    open_streams()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit status. Every error ends here, told as `delivery.cli.errors` says."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    state = {"debug": bool(os.environ.get("HOOT_DEBUG"))}
    try:
        status = get_command(app).main([*arguments] or ["--help"], prog_name="hoot", standalone_mode=False, obj=state)
    except typer.Abort:
        return FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: nothing may pass as a stack trace
        status = report(error, as_json="--json" in options, debug=state["debug"])
        let_output_go()
    return status if isinstance(status, int) else 0
