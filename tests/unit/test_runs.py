"""The numbers of runs: no worker begins under one that a listener has seen of an earlier worker."""

from __future__ import annotations

import pytest

from delivery import wall
from delivery.dispatch.runs import Runs


def test_first_runs_rise_with_the_clock_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000
    monkeypatch.setattr(wall, "ms", lambda: now)
    runs = Runs()
    assert [runs.first(), runs.first()] == [1000, 1001]
    now = 5000
    assert runs.first() == 5000
    now = 10
    assert runs.first() == 5001, "the clock was put back"


def test_a_worker_begins_above_the_runs_of_one_that_failed_faster_than_the_clock_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wall, "ms", lambda: 1000)
    runs = Runs()
    runs.ended(runs.first() + 300)
    assert runs.first() == 1301
    runs.ended(7)
    assert runs.first() == 1302
