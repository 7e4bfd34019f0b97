"""How tests are spread over pytest-xdist's workers: hooks, which tests/conftest.py takes over."""

from __future__ import annotations

import os

import pytest
from xdist.scheduler import LoadFileScheduling

_TOGETHER = "tests/integration/spark/"
"""What goes to one worker as a whole: Spark costs seconds to start and as many again until it is warm."""


class ByFile(LoadFileScheduling):  # type: ignore[misc] # it has no types
    """A file at a time, for what it shares is made once."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _TOGETHER if file.startswith(_TOGETHER) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: a third of their time tests wait, for processes and the ends of sessions."""
    return len(os.sched_getaffinity(0)) + 1
