"""What somebody else wrote into ZooKeeper wrongly: it is named in the log once, and everything beside it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from delivery import connect
from delivery.config import HostConfig
from delivery.errors import CorruptRecord, HostUnreachable
from delivery.metastore import records
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.records import partition_key
from delivery.metastore.records import HostRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from delivery.rpc.blocking import BlockingConnection
from tests.integration.embedded import NEVER, eventually
from tests.integration.hosts import RunningHost
from tests.integration.metastore import corrupt, entry
from tests.integration.several import Watcher

pytestmark = pytest.mark.integration

PARTITIONS, DAMAGED = 8, 1
NOWHERE = HostRecord("nowhere", "rack..example", 7000, None, 1, "1", 0)
"""A host whose address can be nobody's, and which seems to have nothing to do."""


@pytest.fixture
def config(zookeeper_hosts: str, tmp_path: Path) -> HostConfig:
    return HostConfig(zookeeper=zookeeper_hosts, data=tmp_path / "data", grace_seconds=1.0, reconcile_seconds=0.2)


@pytest.fixture
def damage(catalog: Catalog, zk: ZooKeeperClient) -> Iterator[list[str]]:
    """What a log must say, once each."""
    catalog.create_queue("orders", QueueSettings(partitions=PARTITIONS))
    key = partition_key("orders", DAMAGED)
    corrupt(zk, "owners", key, entry("owner", b'{"epoch":-7,"host":"","session":0}'))
    zk.create(f"{records.LISTENERS}/backup-of-mine", b"{}")
    zk.create(records.host_path("half"), b'{"host":"half"}')
    zk.create(records.host_path(NOWHERE.host), msgspec.json.encode(NOWHERE))
    yield [f"entry {key!r} of table owners", "/hoot/hosts/half", "'rack..example', which is found nowhere"]
    zk.delete(records.host_path(NOWHERE.host))


def test_damaged_and_foreign_znodes_are_named_once_and_cost_nobody_else_anything(
    config: HostConfig, damage: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with RunningHost(config), connect(config.zookeeper) as client, Watcher(config.zookeeper, "orders") as watcher:
        queue = client.queue("orders")
        for partition in [number for number in range(PARTITIONS) if number != DAMAGED]:
            queue.put(b"x", partition=partition)
        with pytest.raises(CorruptRecord, match="epoch -7") as caught:
            queue.put(b"x", partition=DAMAGED)
        assert not caught.value.retryable
        eventually(lambda: watcher.distinct() == PARTITIONS - 1, "all others are delivered")
        eventually(lambda: all(any(said in alarm for alarm in alarms_of(caplog)) for said in damage), "all is told")
        NEVER.wait(1.0)  # some sweeps
        alarms = alarms_of(caplog)
        for said in damage:
            assert len({alarm for alarm in alarms if said in alarm}) == len([a for a in alarms if said in a]), said


def alarms_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in list(caplog.records) if record.levelname == "ERROR"]


@pytest.mark.parametrize("address", ["rack..example", "x" * 70, "nobody.invalid", "a b"])
def test_an_address_that_leads_nowhere_is_a_host_that_cannot_be_reached(address: str) -> None:
    with pytest.raises(HostUnreachable, match="cannot connect"):
        BlockingConnection(address, 7000)
