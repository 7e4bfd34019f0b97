"""A real region host with a queue, and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delivery.config import HostConfig
from delivery.metastore.catalog import Catalog
from delivery.model import QueueSettings
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.protocol import load_idl
from tests.integration.hosts import RunningHost

pytestmark = pytest.mark.integration
IDL: Any = load_idl("delivery")


@pytest.fixture
def config(zookeeper_hosts: str, tmp_path: Path) -> HostConfig:
    return HostConfig(zookeeper=zookeeper_hosts, data=tmp_path / "data", grace_seconds=1.0)


@pytest.fixture
def host(config: HostConfig) -> Iterator[RunningHost]:
    with RunningHost(config) as running:
        yield running


@pytest.fixture
def orders(host: RunningHost, catalog: Catalog) -> str:
    """A queue of two partitions on `host`."""
    catalog.create_queue("orders", QueueSettings(partitions=2, body_bytes_max=2000))
    return "orders"


@pytest.fixture
def connection(host: RunningHost) -> Iterator[BlockingConnection]:
    with host.connect() as connection:
        yield connection
