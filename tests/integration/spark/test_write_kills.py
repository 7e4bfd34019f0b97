"""Drivers and Python workers of a writing stream are killed at random moments: every row is stored once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from delivery import connect
from delivery.local import LocalEngine
from tests.integration.embedded import ROOT, descendants

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1800)]

FILES, ROWS = 6, 40_000
KILLS = 5


def start(folder: Path, running: LocalEngine, queue: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.integration.spark.writer", str(folder), running.address, queue]
    with (folder / "log").open("ab") as log:
        driver = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip
    assert driver.stdout is not None
    with driver.stdout as said:
        assert said.readline() == b"started\n", (folder / "log").read_text()[-2000:]
    return driver


def kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def workers(driver: int) -> set[int]:
    """The Python processes that the driver's JVM has started."""
    found = set()
    for pid in descendants(driver):
        with contextlib.suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_stored_once_whoever_is_killed(running: LocalEngine, tmp_path: Path, seed: int) -> None:
    random, queue = Random(seed), f"killed-{seed}"
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        lines = (f'{{"value": "{number}-{row}-{"x" * 80}"}}' for row in range(ROWS))
        (tmp_path / "in" / f"{number:02}.json").write_text("\n".join(lines))
    with connect(running.address) as client:
        client.create_queue(queue, partitions=3)
    driver = start(tmp_path, running, queue)
    try:
        for _ in range(KILLS):
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(random.uniform(0, 8))
            if driver.poll() is not None:
                break
            if random.random() < 0.5 and (those := workers(driver.pid)):
                kill({random.choice(sorted(those))})
            else:
                kill({driver.pid, *descendants(driver.pid)})
                driver.wait()
                driver = start(tmp_path, running, queue)
        while driver.wait(600):
            driver = start(tmp_path, running, queue)  # a micro-batch may have failed as often as Spark tries it
    finally:
        kill({driver.pid, *descendants(driver.pid)})
        driver.wait()
    with connect(running.address) as client:
        found = Counter(message.body for message in client.queue(queue).scanner())
    assert len(found) == FILES * ROWS
    assert found.total() == FILES * ROWS
