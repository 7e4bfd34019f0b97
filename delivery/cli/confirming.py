"""Asking before something is lost."""

from __future__ import annotations

import sys

import typer

from delivery.cli.errors import FAILED
from delivery.cli.output import tell


def confirm(what: str, *, yes: bool) -> None:
    """Return when the user agrees to `what` (or did so with --yes); ends the command when not.

    Raises typer.BadParameter where nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"to {what}, confirm with --yes: there is no terminal to ask on")
    if not typer.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        tell("nothing was done")
        raise typer.Exit(FAILED)
