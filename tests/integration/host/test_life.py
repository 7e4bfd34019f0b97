"""The life of a region host: starting, stopping, handing over, and following what its queues become."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import msgspec
import pytest

from delivery.config import HostConfig
from delivery.embedded.ports import free_port
from delivery.errors import (
    ConfigError,
    HootError,
    HostUnreachable,
    MetadataUnavailable,
    NotOwner,
    PortInUse,
    UnknownQueue,
)
from delivery.metastore.catalog import Catalog
from delivery.model import QueueSettings
from delivery.rpc.blocking import BlockingConnection
from delivery.rpc.protocol import load_idl
from tests.hosting import batch
from tests.integration.embedded import eventually
from tests.integration.host_reads import everything, messages_of, request
from tests.integration.hosts import RunningHost

pytestmark = pytest.mark.integration
IDL: Any = load_idl("delivery")


def test_a_port_that_is_taken_is_an_error_and_nothing_stays_behind(config: HostConfig, catalog: Catalog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for field in ("port", "http_port"):
            busy = msgspec.structs.replace(config, **{field: port})
            with pytest.raises(PortInUse, match=str(port)), RunningHost(busy):
                pass
    assert catalog.hosts() == []


def test_settings_that_cannot_be_are_all_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        HostConfig(port=70_000, grace_seconds=-1, push_bytes=0, zookeeper=" ").check()
    assert all(word in caught.value.message for word in ("port", "grace_seconds", "push_bytes", "zookeeper"))


def test_without_a_zookeeper_the_start_says_so(config: HostConfig) -> None:
    nobody = f"127.0.0.1:{free_port(None)}"
    with (
        pytest.raises(MetadataUnavailable, match="no ZooKeeper answers"),
        RunningHost(msgspec.structs.replace(config, zookeeper=nobody)),
    ):
        pass


def test_a_host_that_stops_unregisters_and_another_takes_its_partitions_over(
    config: HostConfig, catalog: Catalog
) -> None:
    """Two hosts share a data folder; each partition has one owner at any time."""
    catalog.create_queue("orders", QueueSettings())
    with RunningHost(config) as second, second.connect() as to_second:
        with RunningHost(config) as first, first.connect() as to_first:
            assert {host.host for host in catalog.hosts()} == {first.record.host, second.record.host}
            to_first.call("publish", "orders", 0, batch(b"a"), None)
            with pytest.raises(NotOwner) as caught:
                to_second.call("publish", "orders", 0, batch(b"b"), None)
            assert caught.value.address == f"127.0.0.1:{first.record.port}"
        assert [host.host for host in catalog.hosts()] == [second.record.host]

        def is_taken_over() -> bool:
            with contextlib.suppress(NotOwner):
                to_second.call("publish", "orders", 0, batch(b"b"), None)
                return True
            return False

        eventually(is_taken_over, "the second host serves what the first had")
        assert everything(to_second) == [b"a", b"b"]


def test_a_stopping_host_answers_what_it_took_and_closes_its_connections(config: HostConfig, catalog: Catalog) -> None:
    catalog.create_queue("orders", QueueSettings())
    with RunningHost(config) as host, host.connect() as connection:
        for n in range(20):
            connection.send("publish", "orders", 0, batch(b"x" * 1000, producer=1, sequence=n), None)
        assert connection.receive()[1].count == 1
        host.stop()
        outcomes: list[Any] = []
        with contextlib.suppress(HostUnreachable):
            outcomes += (connection.receive()[1] for _ in range(19))
    stored = 1 + sum(not isinstance(outcome, HootError) for outcome in outcomes)
    with RunningHost(config) as host, host.connect() as connection:
        assert connection.call("partitionInfo", "orders", 0).messages >= stored


def test_a_deleted_queue_is_gone_with_its_data_and_may_be_made_anew(
    connection: BlockingConnection, orders: str, catalog: Catalog, config: HostConfig
) -> None:
    connection.call("publish", orders, 0, batch(b"a"), None)
    folders = list((config.data / "queues").iterdir())
    assert len(folders) == 1
    catalog.delete_queue(orders)
    eventually(lambda: not folders[0].exists(), "the data of the deleted queue is gone")
    with pytest.raises(UnknownQueue):
        connection.call("publish", orders, 0, batch(b"b"), None)
    catalog.create_queue(orders, QueueSettings())
    connection.call("publish", orders, 0, batch(b"c"), None)
    assert [m.body for m in messages_of(connection.call("read", request()))] == [b"c"]


def test_changed_settings_are_followed(connection: BlockingConnection, orders: str, catalog: Catalog) -> None:
    connection.call("publish", orders, 0, batch(b"a"), None)
    catalog.update_queue(orders, lambda _: QueueSettings(partitions=2, durability="os"))
    eventually(
        lambda: connection.call("publish", orders, 0, batch(b"b"), None).durability == "os", "it uses the new settings"
    )
