"""Asking before something is lost."""

from __future__ import annotations

import sys

import typer

from delivery.cli.errors import FAILED
from delivery.cli.output import tell


def confirm_by_word(what: str, word: str, *, yes: bool) -> None:
    """As `confirm`, for what cannot be undone: the user has to type `word`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"to {what}, confirm with --yes: there is no terminal to ask on")
    if typer.prompt(f"To {what}, type the word {word}", err=True) != word:
        tell("nothing was done")
        raise typer.Exit(FAILED)


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
