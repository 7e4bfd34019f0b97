"""A Spark Connect server and a client of it, each a real process; the client's has no way to a Java."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delivery.spark.pythons import quick_python
from tests.integration.embedded import ROOT, eventually
from tests.integration.spark.cluster import SPARK, end, environment

_SETTINGS = {
    "spark.master": "local[2]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
    "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
}  # fmt: skip
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Spark Connect server started at: \S*:(\d+)")
SECONDS = 240.0


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Its address, for as long as the context lasts. What it writes is below `folder`."""
    folder.mkdir(parents=True)
    log = folder / "log"
    settings = [text for name, value in _SETTINGS.items() for text in ("--conf", f"{name}={value}")]
    with log.open("wb") as said:
        server = subprocess.Popen(
            [SPARK / "bin" / "spark-submit", "--class", _CLASS, *settings],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=folder,
            env={**environment(folder), "PYSPARK_PYTHON": quick_python(folder)},
        )  # fmt: skip
    try:

        def started() -> re.Match[str] | None:
            assert server.poll() is None, log.read_text(errors="replace")[-3000:]
            return _STARTED.search(log.read_text(errors="replace"))

        eventually(lambda: started() is not None, "the server takes connections", SECONDS)
        found = started()
        assert found is not None
        yield f"sc://127.0.0.1:{found[1]}"
    finally:
        end(server)


class Client:
    """The process of `connected`, until `stop`."""

    def __init__(self, remote: str, folder: Path) -> None:
        """`folder` is its own, and where its errors are logged."""
        folder.mkdir()
        self._log = folder / "log"
        given = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.spark.connected", remote],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, cwd=ROOT,
                env={**given, "PATH": str(folder), "PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    def do(self, step: str, **arguments: Any) -> Any:
        """What a step of `connected` gives. Raises AssertionError with what went wrong there."""
        found, error = self.tried(step, **arguments)
        assert not error, error
        return found

    def refused(self, step: str, **arguments: Any) -> str:
        """The error of a step that must fail."""
        _, error = self.tried(step, **arguments)
        assert error, "it was not refused"
        return error

    def tried(self, step: str, **arguments: Any) -> tuple[Any, str]:
        """What a step gives, and its error. That only the step of jobs needs Hoot here is checked each time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([step, arguments]).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text(errors="replace")[-3000:]
        found, error, loaded = json.loads(answer)
        assert not loaded or step == "job", "Hoot is loaded in a client that asks for nothing of it"
        return found, error

    def stop(self) -> None:
        """End it."""
        with self._process:
            self._process.kill()
