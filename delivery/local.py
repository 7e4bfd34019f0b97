"""A whole engine on this machine as child processes: an embedded ZooKeeper and region hosts, for bench and demo.

The same programs that a user runs, from the same command line; nothing is shared with them but sockets and files, and
the standard input of each, by which it ends with this process (see embedded/lifeline.py). The folder is laid out as
`hoot serve --data FOLDER` lays it out with its own ZooKeeper, so that this command brings back what was left in it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from delivery.embedded.zookeeper import EmbeddedZooKeeper
from delivery.errors import EmbeddedError
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient

_READY_SECONDS = 60.0
_STOP_SECONDS = 20.0


class HostProcess:
    """One `hoot serve` on a ZooKeeper that is there. Killed or stopped, it can be started again on the same data.

    It never outlives this process: should that be killed, it stops as on SIGTERM. So do, when it is killed itself, the
    hosts of one that runs several.
    """

    def __init__(
        self, zookeeper: str, data: Path, *options: str, log: Path | None = None, processes: int = 1
    ) -> None:  # fmt: skip
        """What it says is appended to `log`, else to a file beside the data folder. It runs `processes` hosts."""
        self._command = [
            sys.executable, "-m", "delivery.cli", "serve", "--zookeeper", zookeeper, "--data", str(data),
            "--port", "0", "--http-port", "0", "--until-eof", "--processes", str(processes), *options,
        ]  # fmt: skip
        self._zookeeper, self._processes = zookeeper, processes
        self._log = log or data.parent / f"{data.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process; it must be running."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process, a former one being killed, and return when every host has registered.

        Raises EmbeddedError with the end of its log.
        """
        self.kill()
        with ZooKeeperClient(self._zookeeper) as zookeeper, self._log.open("ab") as output:
            catalog = open_catalog(zookeeper)
            before = {host.host for host in catalog.hosts()}
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
            deadline = time.monotonic() + _READY_SECONDS
            while len({host.host for host in catalog.hosts()} - before) < self._processes:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise EmbeddedError(f"the region host did not start; its log ends:\n{self._log_end()}")
                time.sleep(0.02)

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> None:
        """End the process with SIGTERM, and with SIGKILL if that takes too long. Stopping twice is fine."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.wait()
        self._process.stdin.close()

    def _log_end(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


class LocalEngine:
    """An embedded ZooKeeper and a HostProcess under one folder; a context manager that ends both."""

    def __init__(self, folder: Path, *options: str, processes: int = 1) -> None:
        """`options` are passed to `hoot serve`, which runs `processes` hosts. `start` or `with` starts it all."""
        folder.mkdir(parents=True, exist_ok=True)
        self.zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        self._folder, self._options, self._processes = folder, options, processes
        self._host: HostProcess | None = None

    @property
    def address(self) -> str:
        """What `--zookeeper` and `connect` take."""
        return self.zookeeper.address

    @property
    def host(self) -> HostProcess:
        """The process of the region hosts; only after `start`."""
        assert self._host is not None
        return self._host

    def start(self) -> None:
        """Start ZooKeeper, then the host. On failure nothing is left running."""
        self.zookeeper.start()
        try:
            self._host = HostProcess(
                self.address, self._folder, *self._options, log=self._folder / "host.log", processes=self._processes
            )
            self._host.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the host, then ZooKeeper. Stopping twice is fine."""
        if self._host is not None:
            self._host.stop()
        self.zookeeper.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
