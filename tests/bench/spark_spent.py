"""Processor seconds by who spent them: the region host, Spark's JVM, and its Python workers."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from pathlib import Path

from tests.bench.scale import processor_seconds
from tests.integration.embedded import descendants

_WHO = {b"delivery.cli": "host", b"SparkSubmit": "JVM", b"pyspark": "workers"}


def spent() -> dict[str, float]:
    """Of this process and all below it, so far; what is none of these is `others`."""
    seconds: dict[str, float] = defaultdict(float)
    for pid in (os.getpid(), *descendants(os.getpid())):
        with contextlib.suppress(OSError):
            seconds[_who(Path(f"/proc/{pid}/cmdline").read_bytes())] += processor_seconds(pid)
    return seconds


def told(before: dict[str, float], parts: float) -> str:
    """What has been spent since, all together and by whom, for each of so many parts."""
    since = spent()
    each = {who: (seconds - before.get(who, 0.0)) / parts for who, seconds in since.items()}
    by = ", ".join(f"{who} {seconds:.2f}" for who, seconds in sorted(each.items()) if seconds >= 0.005)
    return f"{sum(each.values()):.2f} processor s ({by})"


def _who(command: bytes) -> str:
    return next((who for part, who in _WHO.items() if part in command), "others")
