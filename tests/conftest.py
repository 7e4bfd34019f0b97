"""What tests of all folders share: a real ZooKeeper for the whole run, and a tree of one's own in it for each test."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from hypothesis import settings

from delivery.embedded import EmbeddedZooKeeper
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient

# How long an example takes is no property of the code: it depends on what else the machine does.
settings.register_profile("hoot", deadline=None)
settings.load_profile("hoot")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A running ZooKeeper. Tests that stop, pause or kill one start their own."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zookeeper_hosts(zookeeper: EmbeddedZooKeeper) -> str:
    """The address of `zookeeper` with a folder for this test alone, which the first client creates."""
    return f"{zookeeper.address}/test-{secrets.token_hex(6)}"


@pytest.fixture
def zk(zookeeper_hosts: str) -> Iterator[ZooKeeperClient]:
    """A session in the test's folder."""
    with ZooKeeperClient(zookeeper_hosts) as client:
        yield client


@pytest.fixture
def catalog(zk: ZooKeeperClient) -> Catalog:
    """The catalog of an empty, laid-out tree in the test's folder."""
    catalog = open_catalog(zk)
    catalog.ensure_layout()
    return catalog
