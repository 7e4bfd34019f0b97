"""The commands are made when they are asked for: each is listed, under the module that brings it."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import typer
from typer.main import get_command

import delivery.cli


def brought_by(module: Any) -> list[str]:
    """The names of the commands that a module of the command line adds to the root."""
    joined = typer.Typer(add_completion=False)
    module.add_to(joined)
    group: Any = get_command(joined)
    return list(group.commands)


def test_every_command_of_every_module_is_listed() -> None:
    names = [found.name for found in pkgutil.iter_modules(delivery.cli.__path__) if found.name != "__main__"]
    modules = {name: importlib.import_module(f"delivery.cli.{name}") for name in names}
    brought = {
        command: name for name, module in modules.items() if hasattr(module, "add_to") for command in brought_by(module)
    }
    assert brought == delivery.cli._HERE


def test_a_command_is_made_once_however_often_it_runs() -> None:
    first: Any = get_command(delivery.cli.app)
    second: Any = get_command(delivery.cli.app)
    assert first.get_command(None, "queue") is second.get_command(None, "queue")
    assert first.get_command(None, "nothing") is None
