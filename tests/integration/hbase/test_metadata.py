"""An engine whose subscriptions are kept in a real HBase, while its hosts and everything else are in ZooKeeper."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

import pytest

from delivery import connect
from delivery.errors import EmbeddedError
from delivery.hbase import Tables, parse_gateways
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.chaos.proxy import HEALTHY, Faults, Proxy
from tests.integration.embedded import eventually
from tests.integration.engine import RecordingSubscriber, engine
from tests.integration.verdicts import judged, judged_any

pytestmark = [pytest.mark.hbase, pytest.mark.slow]


def options(gateways: str, prefix: str, kinds: str) -> tuple[str, ...]:
    """Those of `hoot serve`; the messages stay in the log."""
    return ("--hbase-thrift", gateways, "--set", f"hbase_prefix={prefix}", "--set", f"hbase_metadata={kinds}")


@pytest.mark.parametrize("kinds", ["subscriptions", "ownership,persistence,queues,subscriptions"])
def test_a_subscriber_goes_on_where_it_was_from_a_position_in_hbase(
    tmp_path: Path, hbase_gateways: str, kinds: str
) -> None:
    prefix = f"m{secrets.token_hex(6)}"
    with engine(tmp_path, *options(hbase_gateways, prefix, kinds)) as running, connect(running.address) as client:
        queue = client.create_queue("orders", partitions=2)
        subscriber = RecordingSubscriber(running, "orders", tmp_path)
        subscriber.start()
        try:
            for number in range(20):
                queue.put(b"%d" % number, partition=number % 2)
            eventually(lambda: subscriber.distinct() == 20, "all at the callback")
            judged(client, "orders", "recorder", "idle")
            running.host.kill()
            judged_any(client, "orders", "recorder", ("host_unreachable", "no_owner"))
            running.host.start()
            for number in range(20, 30):
                queue.put(b"%d" % number, partition=number % 2)
            eventually(lambda: subscriber.distinct() == 30, "the later ones, too")
            judged(client, "orders", "recorder", "idle")
        finally:
            subscriber.kill()
        with closing(Tables(parse_gateways(hbase_gateways))) as tables:
            found = tables.scan(f"{prefix}.metastore", b"states\0orders\x01", b"states\0orders\x02", [b"entry"])
        assert [row.rpartition(b"\x01")[2] for row, _ in found] == [b"00000", b"00001"]
        client.delete_queue("orders")


def test_a_host_whose_hbase_is_not_there_or_that_is_set_up_otherwise_says_so_and_ends(
    tmp_path: Path, hbase_gateways: str
) -> None:
    nowhere = (*options("127.0.0.1:1", "p", "subscriptions"), "--set", "hbase_call_seconds=2")
    said = r"p\.metastore: HBase Thrift gateway 127\.0\.0\.1:1 cannot be reached"
    with pytest.raises(EmbeddedError, match=said), engine(tmp_path, *nowhere):
        pass
    with engine(tmp_path) as running:
        assert running.address
    with (
        pytest.raises(EmbeddedError, match="keeps nothing in HBase, and this host is set up to keep subscriptions"),
        engine(tmp_path, *options(hbase_gateways, "p", "subscriptions")),
    ):
        pass


def test_lost_answers_and_an_hbase_out_of_reach_hold_up_neither_publishing_nor_delivery(
    tmp_path: Path, hbase_gateways: str
) -> None:
    host, _, port = hbase_gateways.partition(",")[0].rpartition(":")
    with Proxy() as proxy:
        proxy.add("hbase", "127.0.0.9", (host, int(port)))
        metadata = options(f"127.0.0.9:{port}", f"m{secrets.token_hex(6)}", "subscriptions")
        with (
            engine(tmp_path, *metadata, "--set", "hbase_call_seconds=2") as running,
            connect(running.address) as client,
            ZooKeeperClient(running.address) as session,
            closing(open_catalog(session)) as catalog,
        ):
            queue = client.create_queue("orders", partitions=1)
            subscriber = RecordingSubscriber(running, "orders", tmp_path)
            subscriber.start()
            try:
                for round_, faults in enumerate((HEALTHY, Faults(drop_replies=True), Faults("cut"), Faults("silent"))):
                    proxy.set("hbase", faults)
                    last = [queue.put(b"x") for _ in range(10)][-1].id
                    eventually(lambda: subscriber.distinct() == 10 * (round_ + 1), "those at the callback")  # noqa: B023
                    proxy.set("hbase", HEALTHY)
                    eventually(lambda: catalog.states("orders", "recorder")[0].position == last, "they are saved")  # noqa: B023
                running.host.kill()
                running.host.start()
                queue.put(b"x")
                eventually(lambda: subscriber.distinct() == 41, "the last one at the callback")
                assert subscriber.count() == 41, "the new owner goes on behind what was saved"
            finally:
                subscriber.kill()
