"""What somebody did to the tables of a real HBase: told in a line, with its code; nothing is touched, others go on."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from delivery import Client, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import HootError
from delivery.hbase import Tables, parse_gateways
from delivery.local import HostProcess
from delivery.storage.hbase import keys
from tests.integration.cli.calling import Done, call
from tests.integration.engine import Hosted, hosted

pytestmark = [pytest.mark.hbase, pytest.mark.slow]


class Site:
    """A host with its messages in HBase, which it reads from there alone."""

    def __init__(self, client: Client, running: Hosted, tables: Tables, prefix: str) -> None:
        self.client, self.host, self.tables = client, running.host, tables
        self.address, self._prefix = running.address, prefix

    def queue(self, name: str, partitions: int = 1) -> str:
        """Make a queue; the name of its table, which is made when a message comes."""
        self.client.create_queue(name, partitions=partitions)
        return keys.table_name(self._prefix, name, self.client.queue_record(name).generation)

    def hoot(self, *arguments: str) -> Done:
        """A command with its error as JSON."""
        return call([*arguments, "--json", "--zookeeper", self.address], b"", os.environ)


@pytest.fixture
def site(zookeeper: EmbeddedZooKeeper, tmp_path: Path, hbase_gateways: str) -> Iterator[Site]:
    prefix = f"b{secrets.token_hex(6)}"
    named = ("--set", f"hbase_prefix={prefix}", "--set", "tail_cache_bytes=0")
    with (
        hosted(zookeeper, tmp_path, "--store", "hbase", "--hbase-thrift", hbase_gateways, *named) as running,
        connect(running.address) as client, closing(Tables(parse_gateways(hbase_gateways))) as tables,
    ):  # fmt: skip
        yield Site(client, running, tables, prefix)


def error_of(done: Done) -> tuple[str, str]:
    """Code and message of a command that failed, which says nothing else."""
    assert done.status == 1
    told = json.loads(done.stderr)
    return told["error"], told["message"]


def test_tables_of_others_and_of_newer_versions_are_told_and_left_alone(site: Site) -> None:
    foreign, newer = site.queue("foreign"), site.queue("newer")
    site.tables.create(foreign, ["f"])
    owner = b'{"version": 9}'
    site.tables.create(newer, keys.FAMILIES)
    site.tables.put(newer, [(keys.partition_row(0), {keys.OWNER: owner})])
    code, message = error_of(site.hoot("publish", "foreign", "x"))
    assert (code, foreign in message) == ("layout_mismatch", True)
    assert error_of(site.hoot("publish", "newer", "x"))[0] == "layout_mismatch"
    assert set(site.tables.families(foreign)) == {"f"}
    assert site.tables.scan(newer, b"", b"\xff", [b"batch", b"message"]) == [
        (keys.partition_row(0), {keys.OWNER: owner})
    ]
    site.queue("own")
    assert site.hoot("publish", "own", "x").status == 0


def test_a_row_that_does_not_parse_stops_its_partition_loudly_and_no_other(site: Site) -> None:
    table = site.queue("damaged", partitions=2)
    for partition in ("0", "1"):
        assert site.hoot("publish", "damaged", "x", "-p", partition).status == 0
    [(row, _)] = site.tables.scan(table, keys.from_id(1, 1), keys.partition_end(1), [keys.MESSAGES])
    site.tables.put(table, [(row, {keys.BODY + b"other": b"x"})])
    code, message = error_of(site.hoot("scan", "damaged", "-p", "1"))
    assert (code, "damaged/1" in message) == ("corrupt_record", True)
    assert json.loads(site.hoot("scan", "damaged", "-p", "0").stdout)["body"] == "x"


def test_a_table_that_is_gone_is_not_made_anew_by_whoever_starts_later_either(site: Site) -> None:
    table = site.queue("dropped")
    assert site.hoot("publish", "dropped", "x").status == 0
    site.tables.drop(table)
    for _ in range(2):
        with (
            pytest.raises(HootError, match=f"the table {table} of HBase is not there any more"),
            site.client.queue("dropped").publisher(timeout=60) as publisher,
        ):
            publisher.put(b"y")
        assert table not in site.tables.names()
        site.host.kill()
        site.host.start()
    for command in (("publish", "dropped", "y"), ("scan", "dropped")):
        code, message = error_of(site.hoot(*command))
        assert (code, table in message) == ("messages_gone", True)
    assert table not in site.tables.names()
    assert site.hoot("queue", "delete", "dropped", "--yes").status == 0
    site.queue("dropped")
    assert site.hoot("publish", "dropped", "z").status == 0, "a new one, which begins empty"


def test_a_queue_is_served_by_hosts_of_the_store_that_it_is_in_and_by_no_others(site: Site, tmp_path: Path) -> None:
    site.queue("here")
    table = site.queue("there")
    assert site.hoot("publish", "here", "x").status == 0
    site.host.stop()
    log = HostProcess(site.address, tmp_path / "elsewhere", log=tmp_path / "elsewhere.log")
    log.start()
    try:
        assert site.hoot("publish", "there", "y").status == 0
        for command in (("publish", "here", "y"), ("scan", "here")):
            code, message = error_of(site.hoot(*command))
            assert (code, "`hoot serve --store hbase`" in message) == ("wrong_store", True)
    finally:
        log.stop()
    site.host.start()
    for command in (("publish", "there", "z"), ("scan", "there")):
        code, message = error_of(site.hoot(*command))
        assert (code, "--store log" in message) == ("wrong_store", True)
    assert table not in site.tables.names()
    assert json.loads(site.hoot("scan", "here").stdout)["body"] == "x"
    stored = json.loads(site.hoot("queue", "list").stdout)
    assert {one["queue"]: one["store"] for one in stored} == {"here": "hbase", "there": "log"}


def test_a_table_that_was_emptied_is_not_served_as_an_empty_queue(site: Site) -> None:
    """As `truncate` in the shell of HBase does it."""
    table = site.queue("emptied")
    assert site.hoot("publish", "emptied", "x").status == 0
    site.host.kill()
    site.tables.drop(table)
    site.tables.create(table, keys.FAMILIES)
    site.host.start()
    code, message = error_of(site.hoot("publish", "emptied", "y"))
    assert (code, "was emptied" in message) == ("messages_gone", True)
    assert site.tables.scan(table, b"", b"\xff\xff\xff", [b"batch", b"message"]) == []
