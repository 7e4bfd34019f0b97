"""The bar of a job that Spark runs goes forward only, and is full when all is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delivery.spark.jobs import following
from delivery.spark.jobs.following import WHOLE, Steps, followed, reached


@pytest.mark.parametrize(
    ("seen", "stages", "part"),
    [
        ({}, 4, 0.0), ({1: (3, 4)}, 1, 0.75), ({1: (4, 4)}, 4, 0.25), ({1: (4, 4), 2: (1, 2)}, 2, 0.75),
        ({1: (4, 4), 2: (1, 1)}, 1, 2 / 3), ({1: (0, 0)}, 1, 0.0),
    ],
)  # fmt: skip
def test_each_expected_stage_counts_as_much_and_others_leave_something_to_come(
    seen: dict[int, tuple[int, int]], stages: int, part: float
) -> None:
    assert reached(seen, stages) == pytest.approx(part)


def test_a_step_moves_the_bar_within_its_share_and_never_back(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[{1: (1, 2)}, {1: (2, 2)}, {1: (2, 2), 2: (0, 9), 3: (0, 9)}], [{4: (1, 1)}], []]

    @contextmanager
    def looking(_: Any, look: Any) -> Iterator[None]:
        for seen in looks.pop(0):
            look(seen)
        yield

    monkeypatch.setattr(following, "_looking", looking)
    told: list[int] = []

    def progress(done: int, total: int) -> None:
        assert total == WHOLE
        told.append(done)

    session = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=object)))
    steps = Steps(session, progress, [(60, 2), (30, 2), (10, 1)])
    for _ in range(3):
        with steps.next():
            pass
    assert told == [150, 300, 300, 600, 750, 900, WHOLE]
    looks.append([{1: (1, 4)}])
    told.clear()
    with followed(session, progress, 1):
        pass
    assert told == [250, WHOLE]
