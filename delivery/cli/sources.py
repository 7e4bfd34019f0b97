"""Where the bodies of `hoot publish` come from: arguments, lines of a file or of standard input, or a whole file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import typer

from delivery.errors import MessageTooLarge
from delivery.model import BODY_BYTES_LIMIT

STANDARD_INPUT = "-"


class Source(NamedTuple):
    """A place that bodies come from; made by `source`, which checks it."""

    messages: tuple[str, ...]
    file: Path | None
    whole: bool

    @property
    def is_stream(self) -> bool:
        """Whether the bodies are read from somewhere, rather than given as arguments."""
        return self.file is not None or self.messages in ((), (STANDARD_INPUT,))

    @property
    def is_standard_input(self) -> bool:
        """Whether they are read from standard input."""
        return self.is_stream and (self.file is None or str(self.file) == STANDARD_INPUT)

    def bodies(self) -> Iterator[bytes]:
        """The bodies, read as they are asked for. Raises OSError, and MessageTooLarge for one that no queue takes."""
        if not self.is_stream:
            yield from (os.fsencode(message) for message in self.messages)
        elif self.is_standard_input or self.file is None:
            yield from _read(sys.stdin.buffer, self.whole)
        else:
            with self.file.open("rb") as opened:
                yield from _read(opened, self.whole)


def source(messages: Sequence[str], file: Path | None, *, whole: bool) -> Source:
    """Where bodies come from by the command line. Raises typer.BadParameter when it contradicts itself."""
    found = Source(tuple(messages), file, whole)
    if file is not None and found.messages not in ((), (STANDARD_INPUT,)):
        raise typer.BadParameter("messages come from the arguments or from --file, not from both")
    if whole and not found.is_stream:
        raise typer.BadParameter("--whole is for --file and standard input")
    return found


def _read(source: BinaryIO, whole: bool) -> Iterable[bytes]:
    return (_whole(source),) if whole else _lines(source)


def _whole(source: BinaryIO) -> bytes:
    return _checked(source.read(BODY_BYTES_LIMIT + 1), "the file")


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines without their ends, be they LF or CR LF. Empty lines are empty bodies."""
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
