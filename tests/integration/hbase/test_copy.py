"""A queue moves from the log of one cluster to the HBase of another, and back."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from delivery import Client, connect
from delivery.cli import run
from delivery.embedded import EmbeddedZooKeeper
from delivery.metastore.records import QueueRecord
from tests.integration.embedded import eventually
from tests.integration.engine import RecordingSubscriber, hosted
from tests.saving import is_saved

pytestmark = [pytest.mark.hbase, pytest.mark.slow]


def contents(client: Client, queue: str) -> list[tuple[object, ...]]:
    with client.queue(queue).scanner() as scanner:
        return [(one.partition, one.number, one.topic, one.key, one.header_block, one.body) for one in scanner]


def test_a_queue_moves_from_the_log_to_hbase_and_back_with_its_ids_and_positions(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, hbase_gateways: str
) -> None:
    in_hbase = ("--store", "hbase", "--hbase-thrift", hbase_gateways, "--set", f"hbase_prefix=c{secrets.token_hex(6)}")
    for folder in ("log", "hbase"):
        (tmp_path / folder).mkdir()
    with (
        hosted(zookeeper, tmp_path / "log") as log, hosted(zookeeper, tmp_path / "hbase", *in_hbase) as hbase,
        connect(log.address) as old, connect(hbase.address) as new,
    ):  # fmt: skip
        queue = old.create_queue("orders", partitions=3)
        subscriber = RecordingSubscriber(log, "orders", tmp_path)
        subscriber.start()
        try:
            for number in range(60):
                queue.put(b"%d" % number, topic=f"t{number % 3}", partition=number % 3, headers={"n": b"%d" % number})
            eventually(lambda: subscriber.distinct() == 60, "all at the callback")
            eventually(lambda: is_saved(old, "orders", "recorder"), "its positions")
        finally:
            subscriber.kill()
        for number in range(40):
            queue.put(b"x" * number, key=b"%d" % number)
        before = contents(old, "orders")

        to_hbase = ["queue", "copy", "orders", "orders", "--zookeeper", log.address, "--to", hbase.address]
        assert run([*to_hbase, "--layout", "rows"]) == 0
        assert run([*to_hbase, "--switch", "--force", "--yes"]) == 0
        assert contents(new, "orders") == before
        record: QueueRecord = new.queue_record("orders")
        assert (record.settings.layout, record.settings.closed) == ("rows", False)

        later = RecordingSubscriber(hbase, "orders", tmp_path / "hbase")
        new.queue("orders").put(b"new", partition=0)
        later.start()
        try:
            eventually(lambda: later.distinct() == 41, "what was not heard before, and nothing else")
            eventually(lambda: is_saved(new, "orders", "recorder"), "its positions")
        finally:
            later.kill()

        back = ["queue", "copy", "orders", "orders.2", "--zookeeper", hbase.address, "--to", log.address]
        after = contents(new, "orders")
        assert run([*back, "--switch", "--force", "--yes"]) == 0
        assert contents(old, "orders.2") == after
        lags = {one.subscription: one.lag for one in old.subscription_infos("orders.2")}
        assert lags == {"recorder": 0}
