"""The whole thing: hosts, an ensemble, publishers and subscribers under random faults, and every promise checked.

A seed that fails is a test of its own: `make chaos SEED=N` shows it at work.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cluster import Shape
from tests.chaos.figures import figures
from tests.chaos.report import report
from tests.chaos.run import Run

pytestmark = pytest.mark.integration


def run(folder: Path, seed: int, seconds: float) -> None:
    shape = Shape()
    one = Run(folder, shape, print)
    story = one.go(one.schedule(seed, seconds))
    text, held = report(story, shape.session_seconds)
    assert held, f"seed {seed}, everything is in {folder}\n{text}"
    found = figures(story)
    assert sum(found.faults.values()) > 2
    assert found.outcomes["stored"] > 100
    assert found.callbacks > 200


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_half_a_minute_of_random_faults_breaks_no_promise(tmp_path: Path) -> None:
    run(tmp_path, 11, 25.0)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 110), ids=lambda seed: f"seed-{seed}")
def test_three_minutes_of_random_faults_break_no_promise(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 180.0)
