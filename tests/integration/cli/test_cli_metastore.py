"""`hoot metastore`: the tables as operators see them, and a cluster that is wiped."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from delivery.metastore.catalog import open_catalog
from delivery.metastore.managers.changes import TakeState
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.integration.cli.running import HOOT, SECONDS, Child, Hoot, environment
from tests.integration.embedded import ROOT
from tests.integration.metastore import corrupt, host, listener, make_queue, subscription

pytestmark = pytest.mark.integration


@pytest.fixture
def hoot(zookeeper_hosts: str, zk: ZooKeeperClient) -> Hoot:
    """Three queues, a subscription with a state, and an owner; no host."""
    catalog = open_catalog(zk)
    catalog.ensure_layout()
    for name in ("q", "r", "q2"):
        make_queue(catalog, name)
    catalog.create_subscription(subscription())
    catalog.take_states([TakeState(subscription(), 1, 3)])
    catalog.claim("q", 0, "h1", 7, -1)
    catalog.attach("q", "s", listener())
    return Hoot(zookeeper_hosts)


def test_tables_are_listed_with_the_number_of_their_entries(hoot: Hoot) -> None:
    assert hoot.json("metastore", "tables") == [
        {"table": "owners", "ordered": False, "entries": 1},
        {"table": "persistence", "ordered": False, "entries": 0},
        {"table": "queues", "ordered": True, "entries": 3},
        {"table": "snapshots", "ordered": True, "entries": 0},
        {"table": "states", "ordered": True, "entries": 1},
        {"table": "subscriptions", "ordered": True, "entries": 1},
        {"table": "topics", "ordered": False, "entries": 0},
        {"table": "transactions", "ordered": False, "entries": 0},
    ]
    assert "subscriptions" in hoot("metastore", "tables").stdout


def test_entries_are_listed_in_order_from_a_key_on_and_by_prefix(hoot: Hoot) -> None:
    def keys(*arguments: str) -> list[str]:
        return [one["key"] for one in hoot.json("metastore", "list", *arguments)]

    assert keys("queues") == ["q", "q2", "r"]
    assert keys("queues", "--from", "q1") == ["q2", "r"]
    assert keys("queues", "--prefix", "q") == ["q", "q2"]
    assert keys("queues", "--prefix", "q", "--from", "r") == []
    assert keys("queues", "--limit", "2") == ["q", "q2"]
    assert keys("states", "--prefix", "q/s/") == ["q/s/00001"]
    assert keys("owners", "--prefix", "q/") == ["q/00000"]
    assert "--from r" in hoot("metastore", "list", "queues", "--limit", "2").stderr
    assert hoot.refused("metastore", "list", "owners", "--from", "q", status=2)["error"] == "invalid_request"
    assert "queues" in hoot.refused("metastore", "list", "nothing", status=2)["message"]


def test_an_entry_is_read_by_its_key_with_slashes(hoot: Hoot) -> None:
    found = hoot.json("metastore", "read", "owners", "q/00000")
    assert found == {
        "table": "owners", "key": "q/00000", "version": 0,
        "fields": {"owner": {"host": "h1", "session": 7, "epoch": 1}},
    }  # fmt: skip
    assert OwnerInfo(**found["fields"]["owner"]) == OwnerInfo("h1", 7, 1)
    assert hoot.json("metastore", "read", "owners", "q\x0100000") == found
    state = hoot("metastore", "read", "states", "q/s/00001").stdout
    assert "q/s/00001" in state
    assert '"epoch": 3' in state
    assert hoot.refused("metastore", "read", "queues", "none")["error"] == "no_key"


def test_a_damaged_entry_is_listed_with_its_error(hoot: Hoot, zk: ZooKeeperClient) -> None:
    corrupt(zk, "queues", "q2", b"??")
    found = {one["key"]: one for one in hoot.json("metastore", "list", "queues")}
    assert set(found) == {"q", "q2", "r"}
    assert "'q2' of table queues" in found["q2"]["error"]
    assert hoot.refused("metastore", "read", "queues", "q2")["error"] == "corrupt_record"
    assert "not in Hoot's format" in hoot("metastore", "list", "queues").stdout


def test_an_empty_zookeeper_is_told_and_stays_empty(zookeeper_hosts: str, zk: ZooKeeperClient) -> None:
    hoot = Hoot(zookeeper_hosts)
    assert hoot.refused("metastore", "tables")["error"] == "metadata_unavailable"
    assert not zk.exists("/hoot")


def test_formatting_wipes_everything_and_a_host_can_start_anew(
    hoot: Hoot, zookeeper_hosts: str, zk: ZooKeeperClient, tmp_path: Path
) -> None:
    assert "--yes" in hoot.refused("metastore", "format", status=2)["message"]
    assert hoot.json("metastore", "format", "--yes") == {"formatted": True}
    assert zk.children("/hoot/metastore/tables") == []
    assert (zk.children("/hoot/listeners"), zk.exists("/hoot/metastore/layout")) == ([], False)
    with Child("serve", "--zookeeper", zookeeper_hosts, "--data", str(tmp_path), "--log-level", "warning") as child:
        child.says("listens on|ZooKeeper")
        assert hoot.json("queue", "list") == []
        assert child.end(signal.SIGTERM) == 0, child.errors


@pytest.mark.parametrize("readable", [True, False])
def test_nothing_is_wiped_while_a_host_is_registered(hoot: Hoot, zk: ZooKeeperClient, readable: bool) -> None:
    if readable:
        open_catalog(zk).register_host(host())
    else:
        zk.create("/hoot/hosts/damaged", b"{")
    told = hoot.refused("metastore", "format", "--yes")
    assert told["error"] == "hosts_running"
    assert "`hoot host list`" in told["message"]
    assert open_catalog(zk).queues() == ["q", "q2", "r"]


def test_a_layout_that_cannot_be_read_can_be_wiped(hoot: Hoot, zk: ZooKeeperClient) -> None:
    zk.set("/hoot/metastore/layout", b"???")
    assert hoot.refused("metastore", "tables")["error"] == "layout_mismatch"
    assert hoot.json("metastore", "format", "--yes") == {"formatted": True}
    open_catalog(zk).ensure_layout()


@pytest.mark.parametrize(("word", "wiped"), [("format", True), ("yes", False)])
def test_on_a_terminal_the_word_has_to_be_typed(hoot: Hoot, zk: ZooKeeperClient, word: str, wiped: bool) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{word}\n".encode())
        done = subprocess.run(
            [*HOOT, "metastore", "format"], stdin=theirs, capture_output=True, cwd=ROOT, timeout=SECONDS, check=False,
            env=environment(hoot.zookeeper),
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == (0 if wiped else 1), done.stderr
    assert zk.exists("/hoot/metastore/layout") is not wiped
