"""What the tests of the command line share: `hoot`, run to its end or kept running."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from delivery.embedded.ports import check_free, free_port
from delivery.errors import PortInUse
from tests.integration.cli.calling import Done, call
from tests.integration.embedded import ROOT, eventually

HOOT = [sys.executable, "-m", "delivery.cli"]
SECONDS = 60
_PROCESSES = frozenset({"serve", "zookeeper", "bench", "demo"})
"""Commands that take their process over: signals, threads, collector, children. The others are called in this one."""


def environment(zookeeper: str | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOOT_ZOO")}
    return kept | {"PYTHONPATH": str(ROOT)} | ({"HOOT_ZOOKEEPER": zookeeper} if zookeeper else {})


class Child:
    """A `hoot` that keeps running, with what it says on standard output line by line."""

    def __init__(self, *arguments: str, zookeeper: str | None = None, before: Sequence[str] = ()) -> None:
        """`before` is what starts it, such as `nohup`."""
        self.process = subprocess.Popen(
            [*before, *HOOT, *arguments], cwd=ROOT, env=environment(zookeeper), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        lines.extend(iter(stream.readline, ""))

    def says(self, pattern: str, times: int = 1) -> re.Match[str]:
        """Wait for a line that matches, or as many; the first of them."""
        found: list[re.Match[str]] = []

        def look() -> bool:
            found[:] = [match for line in list(self.lines) if (match := re.search(pattern, line))]
            return len(found) >= times or self.process.poll() is not None

        eventually(look, pattern, SECONDS)
        assert len(found) >= times, f"{pattern} was said {len(found)} times; {self.lines} and {self.errors}"
        return found[0]

    def end(self, number: int) -> int:
        """Send a signal and wait for the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(10)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def run(arguments: Sequence[str | bytes], stdin: bytes, environment: Mapping[str, str]) -> Done:
    """What `call` does, by a process."""
    ended = subprocess.run(
        [*HOOT, *arguments], input=stdin, capture_output=True, timeout=SECONDS, cwd=ROOT, env=environment, check=False
    )
    out, error = (stream.decode(errors="surrogateescape") for stream in (ended.stdout, ended.stderr))
    return Done(ended.returncode, out, error)


class Hoot:
    """Runs commands against an engine to their end."""

    def __init__(self, zookeeper: str) -> None:
        self.zookeeper = zookeeper

    def __call__(self, *arguments: str | bytes, stdin: str | bytes = b"", status: int = 0) -> Done:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        way = run if arguments and arguments[0] in _PROCESSES else call
        done = way(arguments, given, environment(self.zookeeper))
        assert done.status == status, f"{arguments}: {done.status}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, stdin: str = "") -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin).stdout)

    def refused(self, *arguments: str, status: int = 1, stdin: str | bytes = b"") -> dict[str, Any]:
        """Run what must not succeed; the error as a program sees it, after checking what a person sees."""
        told = self(*arguments, status=status, stdin=stdin)
        assert told.stdout == ""
        lines = told.stderr.splitlines()
        assert lines[0].startswith("error: ")
        assert len(lines) <= 2, lines
        assert all(line.startswith("hint: ") for line in lines[1:]), lines
        failure = self(*arguments, "--json", status=status, stdin=stdin).stderr
        assert failure.count("\n") == 1
        found: dict[str, Any] = json.loads(failure)
        assert set(found) == {"error", "message", "hint", "retryable"}
        assert found["message"] == lines[0].removeprefix("error: ")
        return found


def free_ports(count: int) -> int:
    """The first of as many consecutive free ports, none of which an outgoing connection can have meanwhile."""
    for _ in range(100):
        first = free_port(None)
        with contextlib.suppress(PortInUse):
            for port in range(first, first + count):
                check_free(port)
            return first
    raise AssertionError(f"no {count} consecutive free ports")


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
