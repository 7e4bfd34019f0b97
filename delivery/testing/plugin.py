"""For pytest: the fixture `hoot`. Named in a conftest.py, as `pytest_plugins = ["delivery.testing.plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from delivery.testing.engine import Engine


@pytest.fixture
def hoot() -> Iterator[Engine]:
    """Hoot in memory, for this test alone: see delivery.testing.Engine."""
    from delivery.testing.engine import Engine

    with Engine() as engine:
        yield engine
