"""What the tests of a running subscriber share: a queue, and subscribers that are stopped in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delivery.metastore.catalog import Catalog
from delivery.model import QueueSettings
from subscriber import Subscriber
from tests.integration.subscribing import NAME, QUEUE, Theatre


@pytest.fixture
def theatre(queue: Catalog, zookeeper_hosts: str) -> Theatre:
    """Where the test plays the owner of the queue's partitions."""
    return Theatre(queue, zookeeper_hosts)


@pytest.fixture
def queue(catalog: Catalog) -> Catalog:
    """The catalog with the queue."""
    catalog.create_queue(QUEUE, QueueSettings(partitions=3))
    return catalog


@pytest.fixture
def make(zookeeper_hosts: str) -> Iterator[Callable[..., Subscriber]]:
    """Makes subscribers of one name that are stopped in the end."""
    made: list[Subscriber] = []

    def maker(name: str = NAME, **more: Any) -> Subscriber:
        made.append(Subscriber(name, zookeeper_hosts, **more))
        return made[-1]

    yield maker
    for one in made:
        one.stop()
