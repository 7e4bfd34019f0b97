"""How far Spark is with what it does now, told to a Progress while the caller waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from delivery.spark.jobs.running import Progress

EVERY_SECONDS: Final = 0.5


@contextmanager
def followed(session: SparkSession, progress: Progress) -> Iterator[None]:
    """Tell how many tasks are done, of those of the stages that have begun."""
    over = threading.Event()
    follower = threading.Thread(target=_follow, args=(session, progress, over), daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _follow(session: SparkSession, progress: Progress, over: threading.Event) -> None:
    tracker = session.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    while not over.wait(EVERY_SECONDS):
        for stage in tracker.getActiveStageIds():
            if (info := tracker.getStageInfo(stage)) is not None:
                seen[stage] = info.numCompletedTasks, info.numTasks
        active = set(tracker.getActiveStageIds())
        done = sum(count if stage in active else total for stage, (count, total) in seen.items())
        if seen:
            progress(done, sum(total for _, total in seen.values()))
