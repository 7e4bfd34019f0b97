"""An embedded ZooKeeper: a real server as a child process, for one machine.

Between this process and ZooKeeper stands a small guard (guard.py) that ends ZooKeeper when this process is gone, also
after a kill -9. Blocking throughout: a trio program calls `start` and `stop` in a thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from delivery.embedded.folder import DataFolder
from delivery.embedded.java import find_java
from delivery.embedded.ports import answers, check_free, free_port, port_in_use
from delivery.embedded.server import LOOPBACK, command, config_text, environment, zookeeper_jars
from delivery.errors import ConfigError, DataFolderError, EmbeddedError, PortInUse

HEAP_MIB_MIN = 32
PORT_ATTEMPTS = 5
STOP_SECONDS = 10.0

_GUARD = Path(__file__).with_name("guard.py")
_PROBE_INTERVAL_SECONDS = 0.02


class EmbeddedZooKeeper:
    """One ZooKeeper server with its data in a folder, reachable from this machine only.

    `port` is the client port; without one the folder's last port is taken again if it is free, else a free one.
    `heap_mib` bounds the Java heap, of which it takes what it needs: 60,000 znodes were well with 128, and 190 for the
    whole process; an entry of the MetaStore needs about a KiB.
    `start_seconds` is the deadline of `start`. Raises `ConfigError` for values that cannot be.

    Whoever calls `start` calls `stop`, or uses it as a context manager. Calls must not overlap: it is not for two
    threads at once. A program that turns itself into a daemon by forking does so before `start`.
    """

    def __init__(
        self, data_dir: Path, *, port: int | None = None, heap_mib: int = 512, start_seconds: float = 30.0
    ) -> None:
        problems = []
        if port is not None and not 0 < port < 65_536:
            problems.append(f"the port must be between 1 and 65535, not {port}")
        if heap_mib < HEAP_MIB_MIN:
            problems.append(f"the heap must have at least {HEAP_MIB_MIN} MiB, not {heap_mib}")
        if not start_seconds > 0:
            problems.append(f"the start deadline must be above 0 s, not {start_seconds}")
        if problems:
            raise ConfigError("embedded ZooKeeper: " + "; ".join(problems))
        self._folder = DataFolder(data_dir)
        self._wanted_port = port
        self._heap_mib = heap_mib
        self._start_seconds = start_seconds
        self._guard: subprocess.Popen[bytes] | None = None
        self._port: int | None = None
        self._pid: int | None = None

    @property
    def address(self) -> str:
        """`127.0.0.1:port`, as ZooKeeper clients take it. Raises `EmbeddedError` before the first start."""
        if self._port is None:
            raise EmbeddedError("the embedded ZooKeeper has no address yet: start it first")
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id of the running ZooKeeper, None when it is not alive."""
        return self._pid if self.alive else None

    @property
    def alive(self) -> bool:
        """Whether the process runs. That it answers, too, is for a client to find out."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def log_file(self) -> Path:
        """Where its warnings are written."""
        return self._folder.log_file

    def start(self) -> None:
        """Start the server and return when it answers; does nothing when it runs already.

        Data of earlier starts in the folder is there again. After an error nothing is left running. Raises `PortInUse`
        if the port asked for is taken, `DataFolderError` if the folder cannot be written or is in use by another
        embedded ZooKeeper, and `EmbeddedError` if Java or the jars are missing, the server ends or the deadline passes.
        """
        if self.alive:
            return
        self.stop()
        deadline = time.monotonic() + self._start_seconds
        java, jars = find_java(), zookeeper_jars()
        self._folder.prepare()
        arguments = command(java, jars, self._heap_mib, self._folder.marker)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                port = self._launch(arguments)
                self._wait_ready(port, deadline)
            except PortInUse:  # somebody took it between the choice and ZooKeeper's start
                self.stop()
                if self._wanted_port is not None or attempt == PORT_ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """End the server and wait until it is gone; does nothing when it is. The data stays.

        Clients see their connections break, and their sessions wait for the next start. It is ended by SIGKILL, which
        ZooKeeper is made for (see guard.py). Raises `EmbeddedError` if the process cannot be ended in 10 s.
        """
        guard, self._guard, self._pid = self._guard, None, None
        if guard is None:
            return
        assert guard.stdin is not None
        with contextlib.suppress(OSError):
            guard.stdin.write(b".")  # a byte, not only the end of file: a forked child may hold this pipe open, too
        with contextlib.suppress(OSError):
            guard.stdin.close()
        try:
            guard.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
            problem = f"the embedded ZooKeeper in {self._folder.path} did not end in {STOP_SECONDS:g} s"
            raise EmbeddedError(problem) from None
        if guard.returncode < 0:  # the guard was killed and may have left a ZooKeeper behind: locking ends that
            with contextlib.suppress(DataFolderError):
                self._folder.lock().close()

    def kill(self) -> None:
        """Kill the server as a crash would and wait until it is gone, for tests. `start` brings it back."""
        guard, pid = self._guard, self.pid
        if guard is not None and pid is not None:
            os.kill(pid, signal.SIGKILL)
            guard.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _choose_port(self) -> int:
        if self._wanted_port is None:
            return free_port(self._folder.remembered_port())
        check_free(self._wanted_port)
        return self._wanted_port

    def _launch(self, arguments: list[str]) -> int:
        """Start the guard, which starts ZooKeeper; the port chosen.

        Both inherit the folder's locks, and this process drops them: the folder is free again when they have ended,
        whatever becomes of this process.
        """
        folder = self._folder
        locks = folder.lock()
        try:
            port = self._choose_port()
            folder.rotate_log()
            folder.write_config(config_text(port))
            with folder.errors("write"), folder.log_file.open("ab") as log:
                folder.pid_file.unlink(missing_ok=True)
                guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(locks.guard)]
                self._guard = subprocess.Popen(
                    [*guard, str(folder.pid_file), str(folder.log_file), *arguments],
                    bufsize=0, cwd=folder.path, env=environment(), pass_fds=(locks.guard, locks.server),
                    start_new_session=True,  # Ctrl-C in a terminal is for the host, which then stops ZooKeeper last
                    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log,
                )  # fmt: skip
        finally:
            locks.close()
        return port

    def _wait_ready(self, port: int, deadline: float) -> None:
        guard = self._guard
        assert guard is not None
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise self._failed(guard.wait(_PROBE_INTERVAL_SECONDS), port)
            if answers(port, self._folder.data) and (pid := self._folder.running_pid()) is not None:
                break
            if time.monotonic() > deadline:
                said = self._folder.last_log_lines()
                raise EmbeddedError(f"ZooKeeper did not answer in {self._start_seconds:g} s; it said: {said}")
        self._folder.remember_port(port)
        self._pid, self._port = pid, port

    def _failed(self, status: int, port: int) -> Exception:
        said = self._folder.last_log_lines()
        if "Address already in use" in said:
            return port_in_use(port)
        return EmbeddedError(f"ZooKeeper ended while starting (exit status {status}); its log ends with: {said}")
