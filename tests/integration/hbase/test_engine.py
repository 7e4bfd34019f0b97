"""The main path with messages in a real HBase: published, pushed, scanned, and readable in the table itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from delivery import connect
from delivery.bench.report import Result
from delivery.cli import run
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import EmbeddedError
from delivery.hbase import Tables, parse_gateways
from delivery.storage.hbase.keys import id_and_epoch
from tests.chaos.proxy import Proxy
from tests.integration.embedded import eventually
from tests.integration.engine import RecordingSubscriber, engine
from tests.integration.test_kills import killed_at_random

pytestmark = [pytest.mark.hbase, pytest.mark.slow]
Options = Callable[..., tuple[str, ...]]


@pytest.fixture
def prefix() -> str:
    return f"e{secrets.token_hex(6)}"


@pytest.fixture
def options(hbase_gateways: str, prefix: str) -> Options:
    """The options of `hoot serve` for tables of this test alone."""

    def make(layout: str = "rows") -> tuple[str, ...]:
        settings = (f"hbase_prefix={prefix}", f"hbase_layout={layout}")
        named = tuple(part for setting in settings for part in ("--set", setting))
        return ("--store", "hbase", "--hbase-thrift", hbase_gateways, *named)

    return make


def test_messages_are_delivered_scanned_and_readable_in_the_table(
    tmp_path: Path, options: Options, hbase_gateways: str, prefix: str
) -> None:
    with engine(tmp_path, *options()) as running, connect(running.address) as client:
        queue = client.create_queue("orders", partitions=2)
        subscriber = RecordingSubscriber(running, "orders", tmp_path)
        subscriber.start()
        try:
            first = queue.put(b"tea", key=b"k", topic="drinks", partition=0, headers={"h": b"1"})
            second = queue.put(b"bread", topic="food", partition=0)
            third = queue.put(b"", partition=1)
            eventually(lambda: subscriber.distinct() == 3, "all three at the callback")
            running.host.kill()
            running.host.start()
            fourth = queue.put(b"milk", topic="drinks", partition=0)
            eventually(lambda: subscriber.distinct() == 4, "the fourth at the callback")
        finally:
            subscriber.kill()
        with queue.scanner() as scanner:
            scanned = {(m.id, m.topic, m.body, m.key, m.headers.get("h")) for m in scanner}
        assert scanned == {
            (first.id, "drinks", b"tea", b"k", b"1"), (second.id, "food", b"bread", None, None),
            (third.id, "", b"", None, None), (fourth.id, "drinks", b"milk", None, None),
        }  # fmt: skip
        with queue.scanner(topics=["dr*"]) as scanner:
            assert [(m.id, m.topic, m.body, m.key) for m in scanner] == [
                (first.id, "drinks", b"tea", b"k"), (fourth.id, "drinks", b"milk", None),
            ]  # fmt: skip
        with closing(Tables(parse_gateways(hbase_gateways))) as tables:
            (table,) = [name for name in tables.names() if name.startswith(f"{prefix}.")]
            assert table.endswith(".orders")
            found = tables.scan(table, b"", b"\xff", [b"message:drinks"])
            assert [(id_and_epoch(row)[0], *cells.values()) for row, cells in found] == [
                (first.id, b"tea"), (fourth.id, b"milk"),
            ]  # fmt: skip
            client.delete_queue("orders")
            eventually(lambda: table not in tables.names(), "the table is dropped")


@pytest.mark.parametrize("layout", ["rows", "batches"])
def test_hosts_and_subscribers_killed_while_publishing_and_delivering_lose_nothing(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, options: Options, layout: str
) -> None:
    killed_at_random(zookeeper, tmp_path, 7, 3, *options(layout))


@pytest.mark.parametrize(("cache", "times"), [("64MiB", 1), ("0", 2)])
def test_what_is_delivered_live_is_not_read_from_hbase(
    tmp_path: Path, options: Options, hbase_gateways: str, cache: str, times: int
) -> None:
    """Between host and gateway it passes once, when it is put; without the tail cache it comes back."""
    count, size = 400, 20_000
    host, _, port = hbase_gateways.partition(",")[0].rpartition(":")
    with Proxy() as proxy:
        leg = proxy.add("hbase", "127.0.0.8", (host, int(port)))
        through = ("--hbase-thrift", f"127.0.0.8:{port}", "--tail-cache", cache)
        with engine(tmp_path, *options(), *through) as running, connect(running.address) as client:
            queue = client.create_queue("orders", partitions=1)
            subscriber = RecordingSubscriber(running, "orders", tmp_path)
            subscriber.start()
            try:
                queue.put(b"the first, for which a table is made")
                eventually(lambda: subscriber.distinct() == 1, "the first at the callback")
                before = leg.carried
                for number in range(count):
                    queue.put(b"%d" % number + bytes(size))
                eventually(lambda: subscriber.distinct() == 1 + count, "all at the callback")
                assert round((leg.carried - before) / (count * size)) == times
            finally:
                subscriber.kill()


def test_a_host_whose_hbase_is_not_there_says_so_and_ends(tmp_path: Path) -> None:
    nowhere = ("--store", "hbase", "--hbase-thrift", "127.0.0.1:1", "--set", "hbase_call_seconds=2")
    said = r"HBase Thrift gateway 127\.0\.0\.1:1 cannot be reached"
    with pytest.raises(EmbeddedError, match=said), engine(tmp_path, *nowhere):
        pass


def test_the_bench_tells_how_hbase_does_beside_happybase_by_itself(
    hbase_gateways: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [
        "--store",
        "hbase",
        "--hbase-thrift",
        hbase_gateways,
        "--layout",
        "batches",
        "--messages",
        "2000",
        "--json",
    ]
    assert run(["bench", "drain", *named]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=Result)
    assert found.raw_per_second
    assert found.ratio_to_raw == pytest.approx(found.messages_per_second / found.raw_per_second, rel=0.01)
