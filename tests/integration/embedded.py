"""What the tests of the embedded ZooKeeper share: watching processes, a client, and a host in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kazoo.client import KazooClient

from delivery.embedded import EmbeddedZooKeeper

ROOT = Path(__file__).resolve().parents[2]
NEVER = threading.Event()

# Starts a ZooKeeper in the folder argv[1], prints its process ids and address, and waits to be killed.
HOST = """\
import sys, threading
from pathlib import Path
from delivery.embedded import EmbeddedZooKeeper
server = EmbeddedZooKeeper(Path(sys.argv[1]))
{start}
print(server.pid, server._guard.pid, server.address, flush=True)
threading.Event().wait()
"""


def eventually(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        NEVER.wait(0.02)


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """All processes that the process started, and theirs."""
    found: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):
            for child in map(int, path.read_text().split()):
                found |= {child, *descendants(child)}
    return found


@contextlib.contextmanager
def client(address: str) -> Iterator[KazooClient]:
    found = KazooClient(address, timeout=5.0)
    found.start(timeout=15)
    try:
        yield found
    finally:
        found.stop()
        found.close()


@contextlib.contextmanager
def host(folder: Path, start: str = "server.start()") -> Iterator[tuple[subprocess.Popen[str], int, int, str]]:
    """Another Python process with a ZooKeeper of its own: the process, ZooKeeper's pid, its guard's and its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOST.format(start=start), str(folder)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            pid, guard, address = process.stdout.readline().split()
            yield process, int(pid), int(guard), address
        finally:
            process.kill()


def pid_of(server: EmbeddedZooKeeper) -> int:
    assert server.pid is not None
    return server.pid
