"""A command in this process, with the streams, the environment and the logging that a process of its own would have.

A process costs half a second before it does anything. What only a process can show (signals, closed pipes, what a
start costs, what is left running) is asked of one; see `running`.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import pytest

from delivery.cli import main


class Done(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    stdout: str
    stderr: str


class _Pipe(io.TextIOWrapper):
    """A standard stream that is no terminal; `content` is what went through it."""

    def __init__(self, given: bytes = b"") -> None:
        self._bytes = io.BytesIO(given)
        super().__init__(self._bytes, "utf-8", "surrogateescape")

    @property
    def content(self) -> str:
        self.flush()
        return self._bytes.getvalue().decode(errors="surrogateescape")


def call(arguments: Sequence[str | bytes], stdin: bytes, environment: Mapping[str, str]) -> Done:
    """Run `hoot` with these arguments to its end."""
    out, error = _Pipe(), _Pipe()
    with (
        mock.patch.multiple(sys, stdin=_Pipe(stdin), stdout=out, stderr=error),
        mock.patch.dict(os.environ, environment, clear=True),
        _own_logging(),
        pytest.raises(SystemExit) as ended,
    ):
        main([os.fsdecode(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return Done(ended.value.code, out.content, error.content)


@contextmanager
def _own_logging() -> Iterator[None]:
    """No handlers: whoever sets up logging closes those that are there, and pytest needs its own."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers.clear()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
