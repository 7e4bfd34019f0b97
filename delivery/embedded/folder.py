"""The data folder of an embedded ZooKeeper: its files, its locks, its port, and the end of a forgotten server in it.

    data/            snapshots and transaction logs, ZooKeeper's own
    zoo.cfg          written anew at every start
    port             the client port of the last start, taken again if it is free
    zookeeper.log    what this start said; zookeeper.log.1 is the one before
    zookeeper.pid    the running ZooKeeper's process id, written by the guard
    guard.lock       held by the guard: an embedded ZooKeeper is in use here
    server.lock      held by the ZooKeeper itself, which inherits the open file: somebody may be writing data

Both are `flock` locks, which the kernel drops when the last process holding the open file has ended, however it ended;
so none of them can be stale. `guard.lock` free and `server.lock` held means that a guard was killed where the kernel
could not take its ZooKeeper along: that server belongs to nobody and is ended before the next start.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from delivery.errors import DataFolderError

ORPHAN_SECONDS = 10.0
"""How long a forgotten server may take to end after SIGKILL."""

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class FolderLocks:
    """Both locks, as open files for a guard and its ZooKeeper to inherit."""

    guard: int
    server: int

    def close(self) -> None:
        """Drop this process's hold. What inherited the files holds on."""
        os.close(self.guard)
        os.close(self.server)


class DataFolder:
    """Names and rules of the files in one data folder; blocking, and holds nothing open itself."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.data = self.path / "data"
        self.config_file = self.path / "zoo.cfg"
        self.port_file = self.path / "port"
        self.log_file = self.path / "zookeeper.log"
        self.previous_log_file = self.path / "zookeeper.log.1"
        self.pid_file = self.path / "zookeeper.pid"

    def prepare(self) -> None:
        """Make the folder and try that it can be written. Raises `DataFolderError`."""
        try:
            str(self.path).encode()
        except UnicodeEncodeError:
            name = os.fsencode(self.path).decode(errors="backslashreplace")
            raise DataFolderError(f"Java cannot open {name}, whose name is no UTF-8") from None
        with self.errors("write"):
            self.data.mkdir(parents=True, exist_ok=True)
            for folder in (self.path, self.data):
                with tempfile.TemporaryFile(dir=folder):
                    pass

    def lock(self) -> FolderLocks:
        """Take both locks, having ended a forgotten server. The caller closes them.

        Raises `DataFolderError` if an embedded ZooKeeper is running here, or if a forgotten one cannot be ended.
        """
        with contextlib.ExitStack() as undo, self.errors("lock"):
            guard = self._try_lock("guard.lock")
            if guard is None:
                raise DataFolderError(self._in_use())
            undo.callback(os.close, guard)
            server = self._try_lock("server.lock")
            if server is None:
                server = self._end_orphan()
            undo.pop_all()
            return FolderLocks(guard, server)

    def rotate_log(self) -> None:
        """Keep the log of the start before under another name."""
        with self.errors("write"), contextlib.suppress(FileNotFoundError):
            self.log_file.replace(self.previous_log_file)

    def write_config(self, text: str) -> None:
        """Replace zoo.cfg as a whole."""
        with self.errors("write"):
            write_atomically(self.config_file, text)

    def remembered_port(self) -> int | None:
        """The port of the last start; None when there was none or its file makes no sense."""
        try:
            return int(self.port_file.read_text())
        except (OSError, ValueError):
            return None

    def remember_port(self, port: int) -> None:
        """Keep the port for the next start, so that addresses written down elsewhere stay good."""
        with self.errors("write"):
            write_atomically(self.port_file, f"{port}\n")

    def running_pid(self) -> int | None:
        """The process id that the guard wrote, None when no ZooKeeper was started since it was removed."""
        try:
            return int(self.pid_file.read_text())
        except (OSError, ValueError):
            return None

    def last_log_lines(self, lines: int = 4, characters: int = 600) -> str:
        """The end of this start's log in one line, for an error message."""
        try:
            text = self.log_file.read_text(errors="replace")
        except OSError:
            return "(no log)"
        said = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
        return " | ".join(said[-lines:])[-characters:] or "(nothing)"

    @contextlib.contextmanager
    def errors(self, verb: str) -> Iterator[None]:
        """Turn the system's errors about this folder into `DataFolderError`."""
        try:
            yield
        except OSError as error:
            raise DataFolderError(f"cannot {verb} the data folder {self.path}: {error.strerror or error}") from error

    def _try_lock(self, name: str) -> int | None:
        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _in_use(self) -> str:
        pid, port = self.running_pid(), self.remembered_port()
        process = f" (process {pid})" if pid else ""
        remedy = f"use it at 127.0.0.1:{port}, stop it" if port else "stop it"
        return (
            f"the data folder {self.path} is in use by a running embedded ZooKeeper{process}: {remedy},"
            " or take another folder"
        )

    def _end_orphan(self) -> int:
        pid = self.running_pid()
        if pid is not None and self._is_ours(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + ORPHAN_SECONDS
        while (server := self._try_lock("server.lock")) is None:
            if time.monotonic() > deadline:
                raise DataFolderError(
                    f"the data folder {self.path} is held by a ZooKeeper that was left behind and cannot be ended"
                    f" (process {pid or 'unknown'}); end it by hand"
                )
            time.sleep(_POLL_SECONDS)
        return server

    def _is_ours(self, pid: int) -> bool:
        """Whether that process is a ZooKeeper of this folder: process ids are used again."""
        return os.fsencode(self.marker) in _command_line(pid)

    @property
    def marker(self) -> str:
        """An argument that a ZooKeeper of this folder carries on its command line, also for people who look."""
        return f"-Dhoot.zookeeper.folder={self.path}"


def _command_line(pid: int) -> bytes:
    """The command line of a process, empty when it is gone; from /proc where there is one, else from `ps`."""
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, timeout=10, check=False).stdout
    return b""


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a small file as a whole: a reader sees the old text or the new, never a part. Raises `OSError`."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(descriptor, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
