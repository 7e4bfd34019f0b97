"""The other processes of a bench: each is told its task as JSON, and answers with lines of JSON."""

from __future__ import annotations

import subprocess
import sys
from typing import TypeVar

import msgspec

from delivery.bench.checking import BenchFailed

T = TypeVar("T")


class Child:
    """A process that runs a module of this package. It ends with this one; whoever starts it kills it in the end."""

    def __init__(self, module: str, task: msgspec.Struct) -> None:
        """Start it; `ready` waits until it is."""
        command = [sys.executable, "-m", f"delivery.bench.{module}", msgspec.json.encode(task).decode()]
        # In a session of its own: Ctrl-C on the terminal is for the bench, which ends this one without a stack trace.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )  # fmt: skip

    def ready(self) -> None:
        """Return when it has attached what it is to attach. Raises BenchFailed when it has ended."""
        self._read_line()

    def tell(self, kind: type[T]) -> T:
        """What it says in the end. Raises BenchFailed."""
        return msgspec.json.decode(self._read_line(), type=kind)

    def terminate(self) -> None:
        """Ask it to come to its end."""
        self._process.terminate()

    def kill(self) -> None:
        """Leave nothing of it."""
        self._process.kill()
        with self._process:
            pass

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchFailed("a process of the bench ended early; what it said is above")
        return line


def say(value: object) -> None:
    """In such a process: a line for who started it."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()
