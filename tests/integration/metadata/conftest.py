"""A queue with a subscription in a real ZooKeeper, and a second session that looks at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.metastore import make_queue, subscription


@pytest.fixture
def queue(catalog: Catalog) -> Catalog:
    """The catalog with a queue `q` and its subscription `s`."""
    make_queue(catalog)
    catalog.create_subscription(subscription())
    return catalog


@pytest.fixture
def other(zookeeper_hosts: str) -> Iterator[Catalog]:
    """The catalog over another session."""
    with ZooKeeperClient(zookeeper_hosts) as client:
        yield open_catalog(client)
