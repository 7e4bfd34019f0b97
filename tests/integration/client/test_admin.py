"""Administration and connecting, with a real ZooKeeper and a real region host."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delivery import Client, NewMessage, Queue, connect
from delivery.errors import (
    Closed,
    InvalidRequest,
    MetadataUnavailable,
    NoHost,
    QueueExists,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.local import HostProcess
from delivery.metastore.catalog import open_catalog
from delivery.metastore.managers.changes import SaveState, TakeState
from delivery.metastore.managers.queues import QueueManager
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings

pytestmark = pytest.mark.integration
SECONDS = 30.0


def test_queues_are_made_changed_listed_and_deleted(client: Client) -> None:
    made = client.create_queue("admin-a", QueueSettings(partitions=3), ttl_seconds=60)
    assert (made.partitions, made.settings.ttl_seconds) == (3, 60)
    assert client.queue("admin-a") is made
    with pytest.raises(QueueExists):
        client.create_queue("admin-a")
    record = client.update_queue("admin-a", ttl_seconds=None, durability="os")
    assert (record.settings.partitions, record.settings.ttl_seconds, record.settings.durability) == (3, None, "os")
    assert client.queue("admin-a").settings.durability == "os"
    assert "admin-a" in client.queues()
    assert client.queue_record("admin-a") in client.queue_records()
    with pytest.raises(InvalidRequest, match="partitions"):
        client.update_queue("admin-a", partitions=4)
    with pytest.raises(InvalidRequest, match="no setting colour"):
        client.update_queue("admin-a", colour="red")
    with pytest.raises(InvalidRequest):
        client.update_queue("admin-a", ttl_seconds="soon")
    client.delete_queue("admin-a")
    with pytest.raises(UnknownQueue):
        client.delete_queue("admin-a")


def test_of_two_who_change_different_settings_at_once_each_gets_what_it_asked_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_queue("admin-both")
    read = QueueManager.read_queue

    def before_another(queues: QueueManager, name: str, *given: Any) -> Any:
        found = read(queues, name, *given)
        if name == "admin-both":
            monkeypatch.undo()
            client.update_queue(name, ttl_seconds=60)
        return found

    monkeypatch.setattr(QueueManager, "read_queue", before_another)
    assert client.update_queue("admin-both", closed=True).settings == QueueSettings(ttl_seconds=60, closed=True)
    assert client.queue_record("admin-both").settings == QueueSettings(ttl_seconds=60, closed=True)


def test_that_a_queue_has_found_its_store_makes_it_no_other_queue(client: Client) -> None:
    made = client.create_queue("admin-home")
    made.put(b"x")
    assert client.queue_record("admin-home").store == "log"
    assert client.queue("admin-home") is made


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "%2e%2e", "a\r\nb", "a\0b", "x" * 250, "x" * 10_000, "ü"])
def test_names_that_cannot_be_are_refused(client: Client, name: str) -> None:
    for call in (client.create_queue, client.queue, client.delete_queue, client.subscriptions):
        with pytest.raises(InvalidRequest, match="queue name"):
            call(name)


def test_an_unknown_queue_comes_with_near_names(client: Client, queue: Queue) -> None:
    with pytest.raises(UnknownQueue, match=queue.name):
        client.queue(queue.name[:-1])


def test_queue_info_tells_what_each_partition_holds(client: Client, queue: Queue) -> None:
    stored = queue.put_many([NewMessage(b"x", partition=1)] * 5)
    info = client.queue_info(queue.name)
    assert info.record == client.queue_record(queue.name)
    empty, full = info.partitions
    assert (empty.messages, empty.last) == (0, 0)
    assert (full.messages, full.first, full.last) == (5, stored[0].id, stored[-1].id)
    assert full.bytes > 0
    assert full.epoch >= 1
    [live] = client.hosts()
    assert full.host == live.host_port
    assert queue.bounds(1).last == stored[-1].id
    assert queue.count(1, stored[1].id) == 3


def test_a_subscription_is_shown_with_position_end_and_lag(address: str, client: Client, queue: Queue) -> None:
    stored = queue.put_many([NewMessage(b"x", partition=0)] * 10)
    record = SubscriptionRecord(
        name="audit", queue=queue.name, generation=queue.record.generation, created_ms=1, starts={0: 0, 1: 0},
        all_partitions=True, topics=(),
    )  # fmt: skip
    with ZooKeeperClient(address) as session:
        catalog = open_catalog(session)
        catalog.create_subscription(record)
        [taken] = catalog.take_states([TakeState(record, 0, 1)])
        assert isinstance(taken, Versioned)
        saved = msgspec.structs.replace(taken.value, position=int(stored[3].id))
        assert isinstance(catalog.save_states([SaveState(queue.name, "audit", 0, saved, taken.version)])[0], Version)
        assert catalog.states(queue.name, "audit") == {0: saved}
    assert client.subscriptions(queue.name) == ["audit"]
    info = client.subscription_info(queue.name, "audit")
    zero, one = info.partitions
    assert (zero.position, zero.end, zero.lag) == (stored[3].id, stored[-1].id, 6)
    assert zero.lag_seconds is not None
    assert 0 < zero.lag_seconds < 60
    assert (one.position, one.lag, one.lag_seconds) == (0, 0, 0.0)
    assert (info.lag, info.lag_seconds, info.listener) == (6, zero.lag_seconds, None)
    client.delete_subscription(queue.name, "audit")
    with pytest.raises(UnknownSubscription):
        client.subscription_info(queue.name, "audit")
    with pytest.raises(UnknownSubscription):
        client.delete_subscription(queue.name, "audit")
    with pytest.raises(UnknownQueue):
        client.subscription_info("nowhere", "audit")


def test_a_wrong_zookeeper_is_told_within_the_deadline() -> None:
    begun = time.monotonic()
    with pytest.raises(MetadataUnavailable, match=r"127\.0\.0\.1:1 "):
        connect("127.0.0.1:1", deadline=0.5)
    assert time.monotonic() - begun < 10


def test_a_zookeeper_that_nobody_runs_is_told_long_before_the_deadline() -> None:
    begun = time.monotonic()
    with pytest.raises(MetadataUnavailable, match=r"127\.0\.0\.1:1 .*refused.*hoot serve"):
        connect("127.0.0.1:1", deadline=60)
    assert time.monotonic() - begun < 10


def test_without_a_host_put_and_scan_end_with_an_error(zk: ZooKeeperClient, zookeeper_hosts: str) -> None:
    open_catalog(zk).ensure_layout()
    with connect(zookeeper_hosts) as lonely:
        queue = lonely.create_queue("orders")
        with pytest.raises(NoHost):
            queue.put(b"x", timeout=0.5)
        with pytest.raises(NoHost):
            queue.partition_scanner(0, timeout=0.5).next()


def test_without_a_host_a_look_at_many_partitions_waits_for_one_once(zk: ZooKeeperClient, zookeeper_hosts: str) -> None:
    open_catalog(zk).ensure_layout()
    with connect(zookeeper_hosts) as lonely:
        lonely.create_queue("many", partitions=100)
        for name in ("audit", "billing"):
            lonely.create_subscription("many", name, start="earliest")
        began = time.monotonic()
        info = lonely.queue_info("many")
        assert {(one.host, "hoot serve" in one.trouble) for one in info.partitions} == {(None, True)}
        found = lonely.subscription_infos()
        assert [(one.subscription, one.lag, len(one.partitions)) for one in found] == [
            ("audit", None, 100), ("billing", None, 100)
        ]  # fmt: skip
        assert time.monotonic() - began < 60, "and not for each of them"


def test_a_closed_client_refuses_everything(address: str, host: HostProcess) -> None:
    closed = connect(address)
    queue = closed.create_queue(f"closed-{secrets.token_hex(4)}")
    publisher = queue.publisher(linger_ms=1000)
    receipt = publisher.put(b"x")
    closed.close()
    closed.close()
    assert receipt.result(0).id, "closing flushed it"
    for call in (lambda: queue.put(b"x"), lambda: publisher.put(b"x"), closed.queues, queue.publisher):
        with pytest.raises(Closed):
            call()
    with connect(address) as again:
        again.delete_queue(queue.name)


def test_importing_delivery_loads_neither_zookeeper_nor_trio() -> None:
    heavy = "{'kazoo', 'trio', 'thriftpy2'}"
    program = f"import sys, delivery, delivery.errors; delivery.MessageId; print({heavy} & set(sys.modules))"
    root = Path(__file__).resolve().parents[3]
    found = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
