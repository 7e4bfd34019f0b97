"""`hoot demo` as a user types it: short, through both kills, with Spark and all that it does afterwards."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delivery.demo.cli import _explain
from tests.integration.cli.running import Child, Hoot
from tests.integration.embedded import ROOT, descendants, eventually, running

EVENTS = 6_000

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The command, with its temporary folders under `folder`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "delivery.cli", "demo", "--events", str(EVENTS), *options],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.spark
def test_the_demo_survives_its_kills_and_agrees_with_file_and_spark(tmp_path: Path) -> None:
    with demo(tmp_path, "--json") as process:
        output, told = process.communicate(timeout=500)
    assert process.returncode == 0, told
    report = json.loads(output)
    assert report["events"] == EVENTS
    assert report["differences"] == []
    rows = {row["subscription"]: row for row in report["subscriptions"]}
    assert list(rows) == ["all", "jfk", "p01"]
    assert rows["all"]["distinct"] == EVENTS > rows["jfk"]["distinct"] > 0
    assert all(row["distinct"] == row["expected"] and row["calm_p50_ms"] > 0 for row in rows.values())
    assert sum(one["spark"]["flights"] for one in report["carriers"]) == EVENTS
    steps = [(one["name"], one["expected"], one["found"]) for one in report["steps"]]
    assert [name for name, _, _ in steps] == ["archive", "trim", "replay", "deliver", "audit", "audit", "audit"]
    assert all(expected == found > 0 for _, expected, found in steps)
    before, now = (float(size) for size in re.findall(r"([\d.]+) MB", report["steps"][1]["note"]))
    assert now < before, "the live log is shorter than it was"
    assert "kill -9 the subscriber's process" in told
    assert "kill -9 the region host" in told
    assert list(tmp_path.iterdir()) == [], "the demo's folder is removed"


def is_begun(process: subprocess.Popen[str], program: bytes) -> bool:
    """Whether one of its processes runs such a program."""
    places = [Path(f"/proc/{pid}/cmdline") for pid in descendants(process.pid)]
    return any(program in place.read_bytes() for place in places if place.exists())


@pytest.mark.parametrize(
    ("at", "program"),
    [("publishing", b"delivery.demo.receiver"), pytest.param("with Spark", b"SparkSubmit", marks=pytest.mark.spark)],
)
def test_an_interrupted_demo_ends_its_processes_and_removes_its_folder(tmp_path: Path, at: str, program: bytes) -> None:
    with demo(tmp_path) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if at in line:
                break
        eventually(lambda: is_begun(process, program), "the step has begun", 60)
        started = descendants(process.pid)
        assert len(started) >= 3, "ZooKeeper, region host, and subscriber or Spark"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    eventually(lambda: not any(running(pid) for pid in started), "every process has ended")
    assert list(tmp_path.iterdir()) == []


def test_one_command_brings_back_what_a_demo_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOT_ZOOKEEPER", raising=False)
    folder = tmp_path / "a folder's"
    folder.mkdir()
    with demo(folder, "--keep") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "kill -9 the region host" in line:
                break
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    [kept] = folder.iterdir()
    assert {"host.log", "layout.json", "queues", "zookeeper"} <= {path.name for path in kept.iterdir()}
    [command] = [
        line for line in map(str.strip, told.splitlines()) if line.startswith(("hoot serve", "hoot zookeeper"))
    ]
    program, *arguments = shlex.split(command)
    assert (program, arguments) == ("hoot", ["serve", "--data", str(kept)])
    with Child(*arguments) as host:
        hoot = Hoot(host.says(r"ZooKeeper: (\S+) \(embedded\)")[1])
        assert [queue["queue"] for queue in hoot.json("queue", "list")] == ["flights"]
        assert {one["subscription"] for one in hoot.json("subscription", "list")} == {"all", "jfk", "p01"}
        partitions = hoot.json("subscription", "info", "flights", "all")["partitions"]
        assert any(one["position"] is not None for one in partitions), "positions are there, too"
        assert hoot("scan", "flights", "--topic", "JFK", "--limit", "5", "--format", "body").stdout.count('"JFK"') == 5
        assert host.end(signal.SIGTERM) == 0


def test_where_the_environment_names_a_zookeeper_the_command_asks_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOOT_ZOOKEEPER", "127.0.0.1:1")
    _explain(tmp_path)
    assert f"  hoot serve --embedded --data {tmp_path}\n" in capsys.readouterr().err
