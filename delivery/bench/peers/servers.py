"""Starting the servers of peers: on loopback, on free ports, with all they write in a folder of the bench."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delivery.bench.checking import BenchFailed
from delivery.embedded.ports import free_port

LOOPBACK: Final = "127.0.0.1"
_READY_SECONDS: Final = 180.0
_PAUSE_SECONDS: Final = 0.1
_STOP_SECONDS: Final = 20.0


def a_port() -> int:
    """One that is free."""
    return free_port(None)


@contextmanager
def running(
    folder: Path, command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A server, from when it answers on the port. Raises BenchFailed with the end of what it said."""
    log = folder / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "delivery.bench.peers.keeper", *command], stdin=subprocess.PIPE, stdout=output,
            stderr=output, cwd=folder, env={**os.environ, **(environment or {})}, start_new_session=True,
        )  # fmt: skip
    try:
        _await(process, port, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        finally:
            process.kill()
            with process:
                pass


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _READY_SECONDS
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > end:
            said = log.read_text(errors="replace").splitlines()[-15:]
            raise BenchFailed("a server did not start; it said:\n" + "\n".join(said))
        time.sleep(_PAUSE_SECONDS)


def _answers(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
