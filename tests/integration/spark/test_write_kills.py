"""Drivers and executors of a writing stream are killed at random moments, here and on a cluster: no row comes twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from delivery import connect
from tests.integration.embedded import ROOT, descendants
from tests.integration.engine import Engine
from tests.integration.spark.cluster import SHORT_LIVED, cluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(3600)]

FILES, ROWS = 6, 40_000
KILLS = 5
LOCAL = "local[2,8]"
"""A task that fails is tried again, as on a cluster."""


class Place(NamedTuple):
    """Where a stream runs."""

    master: str
    others: Callable[[int], list[int]]
    """By the driver's process: those that do its tasks."""


@pytest.fixture(params=["local", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield Place(LOCAL, lambda driver: having(b"pyspark.daemon", descendants(driver)))
        return
    with cluster(tmp_path / "cluster") as made:
        yield Place(made.master, lambda _: made.executors())


def having(part: bytes, pids: set[int]) -> list[int]:
    """The processes with this in their command lines."""
    found = []
    for pid in sorted(pids):
        with contextlib.suppress(OSError):
            if part in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def start(folder: Path, running: Engine, queue: str, master: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.integration.spark.writer", str(folder), running.address, queue, master]
    with (folder / "log").open("ab") as log:
        driver = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT,
            env={**os.environ, **SHORT_LIVED, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip
    assert driver.stdout is not None
    with driver.stdout as said:
        assert said.readline() == b"started\n", (folder / "log").read_text()[-2000:]
    return driver


def kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", range(2))
def test_every_row_is_stored_once_whoever_is_killed(running: Engine, tmp_path: Path, place: Place, seed: int) -> None:
    random, queue = Random(seed), f"killed-{'here' if place.master == LOCAL else 'there'}-{seed}"
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        lines = (f'{{"value": "{number}-{row}-{"x" * 80}"}}' for row in range(ROWS))
        (tmp_path / "in" / f"{number:02}.json").write_text("\n".join(lines))
    with connect(running.address) as client:
        client.create_queue(queue, partitions=3)
    driver, killed = start(tmp_path, running, queue, place.master), Counter[str]()
    try:
        for _ in range(KILLS):
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(random.uniform(0, 8))
            if driver.poll() is not None:
                break
            if random.random() < 0.5 and (those := place.others(driver.pid)):
                kill({random.choice(those)})
                killed["executor"] += 1
            else:
                kill({driver.pid, *descendants(driver.pid)})
                driver.wait()
                killed["driver"] += 1
                driver = start(tmp_path, running, queue, place.master)
        while driver.wait(1200):
            driver = start(tmp_path, running, queue, place.master)  # a micro-batch may fail as often as Spark tries it
    finally:
        kill({driver.pid, *descendants(driver.pid)})
        driver.wait()
    assert killed.total(), "it was over before anybody was killed"
    with connect(running.address) as client:
        found = Counter(message.body for message in client.queue(queue).scanner())
    assert len(found) == FILES * ROWS
    assert found.total() == FILES * ROWS
