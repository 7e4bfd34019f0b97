"""Child processes that are killed, stopped and started again, and that never outlive the run.

Each has a pipe from this process as its standard input and ends itself when that ends; for those that are stopped at
that moment there is the keeper (keeper.py).
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from tests.integration.embedded import ROOT

SHIM = Path(__file__).with_name("shim")
STOP_SECONDS = 40.0
"""After SIGTERM, before SIGKILL."""


class Keeper:
    """The process that ends the others when this one is gone; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def watch(self, pid: int) -> None:
        """End this one, too."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{pid}\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))],
            stdin=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)


class Child:
    """One program with its place: killed, it can be started again."""

    def __init__(
        self, name: str, keeper: Keeper, log: Path, arguments: Callable[[int], Sequence[str]], **environment: str
    ) -> None:
        """`arguments(incarnation)` are those of Python; `log` gets all that it says."""
        self.name, self._keeper, self._log, self._arguments = name, keeper, log, arguments
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.incarnation = 0
        self.started = 0.0
        """When, on the monotonic clock."""

    @property
    def alive(self) -> bool:
        """Whether the process is there; it may be stopped."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Of the process that was started last; None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it; does nothing when it runs. Does not wait for it to be ready."""
        if self.alive:
            return
        self._forget()
        self.incarnation += 1
        path = os.pathsep.join([str(SHIM), str(ROOT)])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._arguments(self.incarnation)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, **self._environment},
            )  # fmt: skip
        self._keeper.watch(self._process.pid)
        self.started = time.monotonic()

    def signal(self, number: signal.Signals) -> None:
        """Fine when it is gone."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """SIGTERM, and wait; after `seconds` SIGKILL. Whether it went by itself, with status 0."""
        self.signal(signal.SIGTERM)
        return self.ended(seconds)

    def ended(self, seconds: float = STOP_SECONDS) -> bool:
        """Wait for the end of one that was told to end, as `stop` does."""
        if self._process is None:
            return True
        self.signal(signal.SIGCONT)  # one that another fault has stopped cannot do as it was told
        try:
            return self._process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            self.kill()
            return False

    def told(self, text: bytes) -> int:
        """How often its log says so, of all its starts."""
        return self._log.read_bytes().count(text)

    def _forget(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def close(self) -> None:
        """kill -9, for good."""
        self.kill()
        self._forget()


def serve(zookeeper: str, data: Path, port: int, session_seconds: float, *options: str) -> list[str]:
    """The arguments of a region host."""
    return [
        "-m", "delivery.cli", "serve", "--zookeeper", zookeeper, "--data", str(data), "--port", str(port),
        "--until-eof", "--session-timeout", f"{session_seconds:g}s", *options,
    ]  # fmt: skip


def set_clock(file: Path, seconds: float, stands_at_ns: int = 0) -> None:
    """From now on the wall clock of whoever has this file for its HOOT_CHAOS_CLOCK is off by so much, or stands."""
    # Written in place: the child has the file in its memory.
    with file.open("r+b" if file.exists() else "wb") as clock:
        clock.write(struct.pack("<qq", round(seconds * 1e9), stands_at_ns))
