"""A stream that runs for long takes no more memory than after its beginning, in the driver and in the executors.

HOOT_STREAM_MINUTES says for how long; two by default. With pytest's -s each sample is shown.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from statistics import median

import pytest

from delivery.embedded.java import spark_java_home
from tests.integration.embedded import descendants, eventually
from tests.integration.spark.story import SECONDS, Story

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(7200)]

MINUTES = float(os.environ.get("HOOT_STREAM_MINUTES", "2"))
GROWTH, SLACK_BYTES = 1.15, 16 << 20
"""What the last quarter may have above the second one, in which everything is loaded and all caches are filled."""
KINDS = ("the driver", "the driver's Java", "the executors' Java", "the largest worker")
Sample = dict[str, int]


def test_driver_and_executors_need_no_more_memory_the_longer_a_stream_runs(story: Story, tmp_path: Path) -> None:
    jcmd = spark_java_home(tmp_path / "java") / "bin" / "jcmd"
    assert jcmd.exists(), "this test needs jcmd, which comes with a JDK"
    eventually(lambda: story.lag() is not None, "the stream is attached", SECONDS)
    samples, began = list[Sample](), time.monotonic()
    while (passed := time.monotonic() - began) < 60 * MINUTES or len(samples) < 8:
        story.publish()
        story.caught_up()
        samples.append(sampled(story, jcmd))
        shown = {kind: size >> 20 for kind, size in samples[-1].items()}
        print(f"{passed / 60:.1f} min, {sum(story.events.values())} events, MiB: {shown}", flush=True)
    quarter = len(samples) // 4
    settled, last = samples[quarter : 2 * quarter], samples[-quarter:]
    for kind in KINDS:
        before, now = (median(one[kind] for one in part if kind in one) for part in (settled, last))
        assert now <= GROWTH * before + SLACK_BYTES, f"{kind}: {[one.get(kind) for one in samples]}"


def sampled(story: Story, jcmd: Path) -> Sample:
    """Bytes by who has them: of a Java what is alive on its heap, of a Python all that it holds of the machine's.

    What Javas hold of the machine's is only shown: how much garbage one lets lie is its own choice.
    """
    workers, found = 0, Sample()
    for pid in (story.driver.pid, *descendants(story.driver.pid), *of_executors(story)):
        try:
            command, size = Path(f"/proc/{pid}/cmdline").read_bytes(), resident(pid)
        except OSError:
            continue  # a Python that was idle, or a shell: it ended at this moment
        if b"SparkSubmit" in command:
            found["the driver's Java"] = alive(jcmd, pid)
            found["held by it"] = size
        elif b"CoarseGrainedExecutorBackend" in command:
            found["the executors' Java"] = found.get("the executors' Java", 0) + alive(jcmd, pid)
            found["held by them"] = found.get("held by them", 0) + size
        elif pid == story.driver.pid:
            found["the driver"] = size
        elif b"pyspark" in command:
            workers = max(workers, size)
    return found | {"the largest worker": workers}


def of_executors(story: Story) -> list[int]:
    executors = story.spark.executors()
    return sorted({*executors, *(one for pid in executors for one in descendants(pid))})


def alive(jcmd: Path, pid: int) -> int:
    """What is left on a Java's heap when its garbage is collected."""
    told = subprocess.run([jcmd, str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True).stdout
    total = re.search(r"^Total +\d+ +(\d+)", told, re.MULTILINE)
    assert total is not None, told[-200:]
    return int(total[1])


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
