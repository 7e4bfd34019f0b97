"""Whoever starts processes leaves none behind: not even by kill -9, which nothing can be done against in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delivery.local import HostProcess
from tests.integration.cli.running import HOOT, SECONDS, environment
from tests.integration.embedded import ROOT, descendants, eventually, running

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

# On a lifeline of argv[1] seconds; with argv[2] it handles SIGTERM, and does that.
CHILD = """\
import signal, sys, threading
from delivery.embedded import lifeline
lifeline.STOP_SECONDS = float(sys.argv[1])
if len(sys.argv) > 2:
    signal.signal(signal.SIGTERM, lambda *_: print("asked to stop", flush=True) or eval(sys.argv[2]))
lifeline.end_with_parent()
print("ready", flush=True)
threading.Event().wait()
"""


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", CHILD, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n"
            process.stdin.write("what is said is of no account\n")
            process.stdin.flush()
            assert process.poll() is None
            yield process
        finally:
            process.kill()


def test_the_end_of_its_input_ends_a_process_as_sigterm_does() -> None:
    with child("60") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SECONDS) == -signal.SIGTERM


def test_a_process_that_handles_sigterm_stops_in_its_own_way() -> None:
    with child("60", "sys.exit(7)") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert process.wait(SECONDS) == 7
        assert process.stdout.read() == "asked to stop\n"


def test_a_process_that_does_not_stop_is_killed() -> None:
    with child("0.2", "None") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SECONDS) == -signal.SIGKILL


def test_a_host_process_stops_when_its_input_ends(tmp_path: Path, zookeeper_hosts: str) -> None:
    """Cleanly: nobody waits for the end of its session."""
    host = HostProcess(zookeeper_hosts, tmp_path / "data")
    host.start()
    assert host._process is not None
    assert host._process.stdin is not None
    host._process.stdin.close()
    assert host._process.wait(SECONDS) == 0
    assert "stopping (SIGTERM)" in (tmp_path / "data.log").read_text()
    host.start()
    host.stop()


@contextmanager
def killed_when(folder: Path, word: str, *command: str) -> Iterator[set[int]]:
    """Run `hoot`, kill -9 it when its folder or its words hold `word`; the processes it had started."""
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            [*HOOT, *command], cwd=ROOT, env=environment() | {"TMPDIR": str(folder)}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
    started: set[int] = set()
    try:
        eventually(
            lambda: process.poll() is not None or bool(list(folder.glob(word)))
            or word in (folder / "said").read_text(), word, 150,
        )  # fmt: skip
        started = descendants(process.pid)
        assert process.poll() is None, (folder / "said").read_text()
        beside = [pid for pid in started if os.getsid(pid) == process.pid]
        assert beside == [], "Ctrl-C on a terminal reaches the command alone"
        process.kill()
        process.wait()
        yield started
    finally:
        process.kill()
        process.wait()
        for pid in filter(running, started):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("options", "count"), [((), 5), (("--processes", "2"), 7)], ids=["one host", "two hosts"])
def test_a_killed_bench_leaves_nothing_behind(tmp_path: Path, options: tuple[str, ...], count: int) -> None:
    """ZooKeeper and its guard, the region host or two and who started them, and two subscribers busy with messages."""
    bench = ("bench", "fanout", "--subscriptions", "2", "--messages", "50000000", *options)
    with killed_when(tmp_path, "hoot-bench-*/queues/*/00000/*.log", *bench) as started:
        assert len(started) == count
        eventually(lambda: not any(map(running, started)), "every process has ended")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "count"),
    [("publishing 3,000", 4), pytest.param("hoot-demo-*/spark/*/blockmgr-*", 5, marks=pytest.mark.spark)],
    ids=["publishing", "counting"],
)
def test_a_killed_demo_leaves_nothing_behind(tmp_path: Path, moment: str, count: int) -> None:
    """ZooKeeper and its guard, the region host, and the subscribers' process or later Spark's, with its JVM."""
    with killed_when(tmp_path, moment, "demo", "--events", "3000") as started:
        assert len(started) >= count
        eventually(lambda: not any(map(running, started)), "every process has ended")
