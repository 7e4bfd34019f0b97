"""How far Spark is with what it does now, told to a Progress while the caller waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark import StatusTracker
from pyspark.sql import SparkSession

from delivery.spark.jobs.running import Progress, context

EVERY_SECONDS: Final = 0.5
WHOLE: Final = 1000
"""What a Progress of `Steps` is told of."""

Seen = dict[int, tuple[int, int]]
"""By stage, how many of its tasks are done, and how many it has."""


class Steps:
    """Several things that Spark does one after another, as one that only ever goes forward.

    Spark knows of a stage when it begins, so how much of a job is done is a guess: each step has its share of the
    whole, and a number of stages that are expected in it, each of which counts as much. Where that is wrong a bar
    hurries or waits, but it is not full too early.
    """

    def __init__(self, session: SparkSession, progress: Progress, steps: Sequence[tuple[int, int]]) -> None:
        """`steps` are shares, in whatever unit, and numbers of stages. Raises as `running.context`."""
        self._tracker, self._progress, self._steps = context(session).statusTracker(), progress, list(steps)
        self._all = sum(share for share, _ in steps)
        self._done = self._told = 0

    @contextmanager
    def next(self) -> Iterator[None]:
        """Follow Spark through the next step."""
        share, stages = self._steps.pop(0)

        def look(seen: Seen) -> None:
            self._tell(self._done + share * reached(seen, stages))

        with _looking(self._tracker, look):
            yield
        self._done += share
        self._tell(self._done)

    def _tell(self, done: float) -> None:
        self._told = max(self._told, int(WHOLE * done / self._all))
        self._progress(self._told, WHOLE)


def reached(seen: Seen, stages: int) -> float:
    """Which part of a step is done, of which so many stages are expected."""
    done = sum(count / max(1, total) for count, total in seen.values())
    return done / (stages if len(seen) <= stages else len(seen) + 1)


@contextmanager
def followed(session: SparkSession, progress: Progress, stages: int) -> Iterator[None]:
    """Tell how far Spark is with a single step. Raises as `Steps`."""
    with Steps(session, progress, [(1, stages)]).next():
        yield


@contextmanager
def _looking(tracker: StatusTracker, look: Callable[[Seen], None]) -> Iterator[None]:
    over = threading.Event()
    follower = threading.Thread(target=_follow, args=(tracker, look, over), daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _follow(tracker: StatusTracker, look: Callable[[Seen], None], over: threading.Event) -> None:
    known: Seen = {}
    while not over.wait(EVERY_SECONDS):
        for stage in tracker.getActiveStageIds():
            if (info := tracker.getStageInfo(stage)) is not None:
                known[stage] = info.numCompletedTasks, info.numTasks
        active = set(tracker.getActiveStageIds())
        look({stage: (count if stage in active else total, total) for stage, (count, total) in known.items()})
