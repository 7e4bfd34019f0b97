"""A child process that never outlives this one: it runs under the guard that the embedded ZooKeeper has, too."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from delivery.embedded import zookeeper

_GUARD = Path(zookeeper.__file__).with_name("guard.py")
_END_SECONDS = 20.0


class Guarded:
    """One program, started and ended by its process id; what it prints goes to `FOLDER/NAME.log`, earlier runs kept."""

    def __init__(self, name: str, command: list[str], folder: Path, lock: int) -> None:
        """`lock` is an open file that the guard holds for as long as the program runs."""
        self.name, self._command, self._folder, self._lock = name, command, folder, lock
        self.log = folder / f"{name}.log"
        self._pid_file = folder / f"{name}.pid"
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns at once."""
        assert not self.alive, f"{self.name} is running"
        self._pid_file.unlink(missing_ok=True)
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(self._lock)]
        with self.log.open("ab") as log:
            self._guard = subprocess.Popen(
                [*guard, str(self._pid_file), str(self.log), *self._command], bufsize=0, cwd=self._folder,
                pass_fds=(self._lock,), start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=log,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def pid(self) -> int:
        """Its process id; only while it runs and some moments after `start`."""
        return int(self._pid_file.read_text())

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as kill -9 would and wait until it is gone; fine when it is."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        with contextlib.suppress(OSError):
            guard.stdin.write(b".")
        with contextlib.suppress(OSError):
            guard.stdin.close()
        guard.wait(_END_SECONDS)

    def said(self, lines: int = 5) -> str:
        """The last lines of its log, for an error message."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return "(no log)"
