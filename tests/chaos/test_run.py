"""The whole thing: hosts, an ensemble, publishers and subscribers under random faults, and every promise checked.

A seed that fails is a test of its own: `make chaos SEED=N` shows it at work. `make nightly` plays several for minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cluster import Shape
from tests.chaos.figures import figures
from tests.chaos.report import again, report
from tests.chaos.run import Run

pytestmark = pytest.mark.integration


SEED, SECONDS = 11, 24.0


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_half_a_minute_of_random_faults_breaks_no_promise(tmp_path: Path) -> None:
    shape = Shape()
    run = Run(tmp_path, shape, print)
    story = run.go(run.schedule(SEED, SECONDS))
    text, held = report(story, shape.session_seconds)
    assert held, f"everything is in {tmp_path}\n{text}\nagain: {again(SEED, SECONDS / 60, shape.session_seconds)}"
    found = figures(story)
    assert sum(found.faults.values()) > 2
    assert found.outcomes["stored"] > 100
    assert found.callbacks > 200
