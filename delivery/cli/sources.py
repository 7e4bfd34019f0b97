"""Where the bodies of `hoot publish` come from: arguments, the lines of a file or of standard input, or a whole file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import typer

from delivery.errors import MessageTooLarge
from delivery.model import BODY_BYTES_LIMIT

STANDARD_INPUT = "-"


def is_stream(messages: list[str], file: Path | None) -> bool:
    """Whether the bodies are read from somewhere, rather than given as arguments. Raises typer.BadParameter."""
    given = messages not in ([], [STANDARD_INPUT])
    if given and file is not None:
        raise typer.BadParameter("messages come from the arguments or from --file, not from both")
    return not given


def bodies(messages: list[str], file: Path | None, *, whole: bool) -> Iterator[bytes]:
    """The bodies, read as they are asked for. Raises OSError, and MessageTooLarge for one that no queue takes."""
    if not is_stream(messages, file):
        if whole:
            raise typer.BadParameter("--whole is for --file and standard input")
        yield from (os.fsencode(message) for message in messages)
    elif file is None or str(file) == STANDARD_INPUT:
        yield from _read(sys.stdin.buffer, whole)
    else:
        with file.open("rb") as source:
            yield from _read(source, whole)


def _read(source: BinaryIO, whole: bool) -> Iterable[bytes]:
    return (_whole(source),) if whole else _lines(source)


def _whole(source: BinaryIO) -> bytes:
    return _checked(source.read(BODY_BYTES_LIMIT + 1), "the file")


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines without their ends; a carriage return before the end is part of it. Empty lines are empty bodies."""
    number = 0
    # Two more bytes than a body may have leave room for both kinds of line end, and bound what one line can take.
    while line := source.readline(BODY_BYTES_LIMIT + 2):
        number += 1
        body = line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line
        yield _checked(body, f"line {number}")


def _checked(body: bytes, what: str) -> bytes:
    if len(body) > BODY_BYTES_LIMIT:
        raise MessageTooLarge(f"{what} is longer than {BODY_BYTES_LIMIT >> 20} MiB, the most that a body can have")
    return body
