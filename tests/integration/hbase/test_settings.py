"""An HBase that is not set up as it should be: what a host says of it, and what an acknowledgement means even there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from delivery import connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import EmbeddedError, MessageTooLarge
from delivery.hbase import Tables
from delivery.hbase.site import read_settings
from delivery.storage.hbase import keys
from tests.hbase.server import HBase
from tests.integration.embedded import eventually
from tests.integration.engine import hosted

pytestmark = [pytest.mark.hbase, pytest.mark.slow]
MIB = 1 << 20
WRONG = {"hbase.server.keyvalue.maxsize": str(MIB), "hbase.hlog.split.skip.errors": "true"}


@pytest.fixture(scope="module")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    with HBase(tmp_path_factory.mktemp("hbase"), others=WRONG) as server:
        yield server


@pytest.fixture
def tables(hbase: HBase) -> Iterator[Tables]:
    with closing(Tables(hbase.gateways, call_seconds=60)) as tables:
        yield tables


def test_a_host_says_at_its_start_what_of_hbase_s_settings_loses_or_refuses_messages(
    hbase: HBase, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    assert hbase.web is not None
    pages = f"{hbase.web[0]}:{hbase.web[1]},127.0.0.1:1"
    options = ("--store", "hbase", "--hbase-thrift", hbase.thrift, "--set", f"hbase_web={pages}")
    with hosted(zookeeper, tmp_path, *options) as running, connect(running.address) as client:

        def said(text: str) -> bool:
            return text in (tmp_path / "host.log").read_text()

        for text in (
            "hbase.hlog.split.skip.errors is true",
            f"hbase.server.keyvalue.maxsize is {MIB}",
            f"its log is in {(hbase.folder / 'data').as_uri()}",
            "127.0.0.1:1/conf of HBase cannot be read",
        ):
            assert said(text), text
        queue = client.create_queue("orders", body_bytes_max=4 * MIB)
        assert not said("HBase takes no cell of 8 MiB"), "before there is a table to ask it of"
        queue.put(b"small")
        eventually(lambda: said("HBase takes no cell of 8 MiB"), "it was asked")
        with pytest.raises(MessageTooLarge):
            queue.put(bytes(2 * MIB))
        queue.put(b"small")
        with queue.scanner() as scanner:
            assert [message.body for message in scanner] == [b"small", b"small"], "what was asked put nothing"
        running.host.stop()
        (tmp_path / "host.log").unlink()
        running.host.start()
        assert said("HBase takes no cell of 8 MiB"), "at once, where there is a table"


def test_a_program_of_hbase_tells_its_version(hbase: HBase) -> None:
    assert hbase.web is not None
    assert read_settings(hbase.web, 60)["hbase.defaults.for.version"].startswith("2.6.")


def test_tables_are_made_in_a_namespace_and_nowhere_without_it(
    hbase: HBase, tables: Tables, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    options = ("--store", "hbase", "--hbase-thrift", hbase.thrift, "--set", "hbase_prefix=apart:hoot")
    with (
        pytest.raises(EmbeddedError, match="create_namespace 'apart'"),
        hosted(zookeeper, tmp_path, *options),
    ):
        pass
    hbase.operate("namespace", "apart")
    with hosted(zookeeper, tmp_path, *options) as running, connect(running.address) as client:
        queue = client.create_queue("orders")
        queue.put(b"x")
        table = keys.table_name("apart:hoot", "orders", client.queue_record("orders").generation)
        assert table in tables.names()
        with queue.scanner() as scanner:
            assert [message.body for message in scanner] == [b"x"]


def test_what_is_put_through_a_gateway_is_in_the_log_whatever_its_table_says(hbase: HBase, tables: Tables) -> None:
    """A table without a log, a region server that is killed: the gateway has asked for the log with each row."""
    rows = [(b"%03d" % number, {b"f:": b"%d" % number}) for number in range(300)]
    tables.create("unlogged", ["f"])
    tables.wait_open("unlogged")
    hbase.operate("unlogged", "unlogged")
    tables.put("unlogged", rows)
    assert tables.check_and_put("unlogged", b"set", (b"f:", None), b"f:", b"1")
    os.kill(hbase.processes["master"].pid, signal.SIGKILL)
    hbase.processes["master"].kill()
    hbase.processes["master"].start()
    hbase.wait_ready()
    assert tables.scan("unlogged", b"", b"\xff", [b"f:"]) == [*rows, (b"set", {b"f:": b"1"})]
