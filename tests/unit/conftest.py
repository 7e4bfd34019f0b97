"""A MetaStore on znodes in memory, for the tests of how it lays out its tables and of what can go wrong with them."""

from __future__ import annotations

import pytest

from delivery.metastore.tables.base import MetastoreScannableTable
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from tests.znodes import FakeZNodes


@pytest.fixture
def zk() -> FakeZNodes:
    return FakeZNodes()


@pytest.fixture
def store(zk: FakeZNodes) -> ZooKeeperMetaStore:
    return ZooKeeperMetaStore(zk, zk)


@pytest.fixture
def table(store: ZooKeeperMetaStore) -> MetastoreScannableTable:
    return store.create_scannable_table("t")
