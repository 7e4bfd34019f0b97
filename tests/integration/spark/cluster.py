"""A standalone Spark cluster of real processes from the installed PySpark: a master and workers with a core each."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark

from delivery.embedded.java import spark_java_home
from tests.integration.embedded import ROOT, descendants, eventually

SPARK = Path(pyspark.__path__[0])
_DEPLOY = "org.apache.spark.deploy"


SHORT_LIVED = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Of processes that are killed long before their code would be compiled for speed."""


def environment(folder: Path) -> dict[str, str]:
    """Of a process of Spark's that keeps to this machine, and writes what it must below `folder`."""
    return {
        **os.environ, **SHORT_LIVED, "JAVA_HOME": str(spark_java_home(folder)), "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder / "local"), "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it and all that it started."""
    for pid in (*descendants(process.pid), process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


class Cluster:
    """Master and workers, until `stop`."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        """Starts them, which writes logs and work folders below `folder`."""
        folder.mkdir(parents=True)
        self._folder, self._processes = folder, list[subprocess.Popen[bytes]]()
        self._environment = {
            **environment(folder), "SPARK_DAEMON_MEMORY": "256m", "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }  # fmt: skip
        self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.master = self._awaited("master", r"spark://[\w.]+:\d+")
        for number in range(workers):
            options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
            self._start(f"worker-{number}", "worker.Worker", *options, self.master)
        for number in range(workers):
            self._awaited(f"worker-{number}", "Successfully registered")

    def executors(self) -> list[int]:
        """The processes of executors, as started by the workers."""
        found = []
        for pid in sorted(set().union(*(descendants(one.pid) for one in self._processes))):
            with contextlib.suppress(OSError):
                if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def stop(self) -> None:
        """End all of it, executors included."""
        for process in self._processes:
            end(process)

    def _start(self, name: str, kind: str, *options: str) -> None:
        command = [str(SPARK / "bin" / "spark-class"), f"{_DEPLOY}.{kind}", *options]
        with self._log(name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment)
            )

    def _awaited(self, name: str, pattern: str) -> str:
        """What matches in the process's log, as soon as it is there."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, self._log(name).read_text(errors="replace"))

        eventually(lambda: found() is not None, f"{name} says {pattern}", 120)
        said = found()
        assert said is not None
        return said[0]

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster for as long as the context lasts."""
    made = Cluster(folder)
    try:
        yield made
    finally:
        made.stop()
