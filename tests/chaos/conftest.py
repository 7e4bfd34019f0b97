"""The stage on which single faults are tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery.metastore.catalog import Catalog
from tests.chaos.stage import Stage


@pytest.fixture
def stage(tmp_path: Path, zookeeper_hosts: str, catalog: Catalog) -> Iterator[Stage]:
    """No host yet, and a ZooKeeper in a folder of this test's own."""
    with Stage(tmp_path, zookeeper_hosts, catalog) as made:
        yield made
