"""`hoot host`, `hoot partition` and `hoot serve --processes`: several hosts, seen and moved from the command line."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from delivery import connect
from delivery.embedded import EmbeddedZooKeeper
from tests.integration.cli.running import Child, Hoot, free_ports
from tests.integration.embedded import descendants, eventually, running

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@contextmanager
def three(zookeeper: str, folder: Path) -> Iterator[Child]:
    """Three hosts in processes, on one ZooKeeper and one data folder."""
    arguments = ["serve", "--zookeeper", zookeeper, "--data", str(folder), "--processes", "3"]
    arguments += ["--port", "0", "--http-port", "0", "--session-timeout", "2s", "--set", "rebalance_seconds=0"]
    with Child(*arguments) as child:
        child.says("listens on", times=3)
        yield child


def with_orders(zookeeper: str) -> Hoot:
    """A queue of six partitions, each with a message and an owner."""
    with connect(zookeeper) as client:
        orders = client.create_queue("orders", partitions=6)
        for partition in range(6):
            orders.put(b"hello", partition=partition)
    return Hoot(zookeeper)


@pytest.fixture(scope="module")
def hoot(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hoot]:
    """For tests that end none of the hosts."""
    address = f"{zookeeper.address}/placement-{secrets.token_hex(6)}"
    with three(address, tmp_path_factory.mktemp("placement") / "data"):
        yield with_orders(address)


@pytest.fixture
def serving(zookeeper_hosts: str, tmp_path: Path) -> Iterator[Child]:
    """For tests that do."""
    with three(zookeeper_hosts, tmp_path / "data") as child:
        yield child


def owners(hoot: Hoot) -> dict[int, str]:
    return {one["partition"]: one["host"] for one in hoot.json("partition", "list", "orders")}


def test_partitions_are_listed_and_moved(hoot: Hoot) -> None:
    hosts = [host["host"] for host in hoot.json("host", "list")]
    before = owners(hoot)
    assert set(before.values()) <= set(hosts)
    target = next(host for host in hosts if host != before[0])
    move = ["partition", "move", "orders", "0", target[:10]]
    told = hoot.json(*move, "--dry-run")
    assert (told["from"], told["to"], told["moved"]) == (before[0], target, False)
    assert owners(hoot) == before
    assert hoot.json(*move)["moved"] is True
    assert owners(hoot)[0] == target
    assert hoot.json(*move)["moved"] is False
    hoot("publish", "orders", "again", "--partition", "0")
    assert len(hoot("scan", "orders", "--partition", "0").stdout.splitlines()) == 2
    assert "orders" in hoot("partition", "list").stdout


def test_moves_that_cannot_be_are_refused_with_what_to_do(hoot: Hoot) -> None:
    name = hoot.json("host", "list")[0]["host"]
    assert hoot.refused("partition", "move", "orders", "6", name, status=2)["error"] == "unknown_partition"
    assert hoot.refused("partition", "move", "nothing", "0", name)["error"] == "unknown_queue"
    near = hoot.refused("partition", "move", "orders", "0", f"{name[:15]}?")
    assert near["error"] == "unknown_host"
    assert name in near["message"]
    assert hoot.refused("host", "info", "nobody")["error"] == "unknown_host"
    assert hoot.refused("host", "drain", "nobody")["error"] == "unknown_host"
    assert hoot.refused("partition", "list", "nothing")["error"] == "unknown_queue"


def test_a_host_is_drained_takes_nothing_and_takes_part_again(hoot: Hoot) -> None:
    name = owners(hoot)[0]
    had = hoot.json("host", "info", name)["owned"]
    assert {key: had[0][key] for key in ("queue", "partition")} == {"queue": "orders", "partition": 0}
    told = hoot.json("host", "drain", name, "--dry-run")
    assert (told["draining"], told["partitions"], told["left"]) == (False, len(had), len(had))
    assert owners(hoot)[0] == name
    told = hoot.json("host", "drain", name)
    assert (told["draining"], told["partitions"], told["left"]) == (True, len(had), 0)
    assert name not in owners(hoot).values()
    assert hoot.refused("partition", "move", "orders", "0", name)["error"] == "host_draining"
    states = {host["host"]: host["draining"] for host in hoot.json("host", "list")}
    assert states[name] is True
    assert sum(states.values()) == 1
    assert hoot.json("host", "drain", name, "--undo")["draining"] is False
    assert hoot.json("partition", "move", "orders", "0", name)["moved"] is True
    assert "serving" in hoot("host", "info", name).stdout
    assert "still has 1 partitions after 0 s" in hoot("host", "drain", name, "--timeout", "0", status=1).stderr
    hoot("host", "drain", name, "--undo")


def test_processes_end_together_on_sigterm(zookeeper_hosts: str, serving: Child) -> None:
    hoot = with_orders(zookeeper_hosts)
    children = descendants(serving.process.pid)
    assert len(children) >= 3
    assert serving.end(signal.SIGTERM) == 0
    assert not any(running(pid) for pid in children)
    assert hoot.json("host", "list") == []


def test_a_process_that_was_killed_is_told_of_and_its_partitions_live_on(zookeeper_hosts: str, serving: Child) -> None:
    hoot = with_orders(zookeeper_hosts)
    victim = max(descendants(serving.process.pid))
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: any("is not replaced" in line for line in serving.errors), "the log says so", 20)
    for partition in range(6):
        hoot("publish", "orders", "again", "--partition", str(partition))
    eventually(lambda: len(hoot.json("host", "list")) == 2, "two hosts are left", 20)
    assert serving.end(signal.SIGINT) == 1


def test_children_end_with_a_parent_that_is_killed(serving: Child) -> None:
    children = descendants(serving.process.pid)
    serving.process.kill()
    eventually(lambda: not any(running(pid) for pid in children), "all hosts are gone", 20)


def test_given_ports_are_the_first_of_consecutive_ones_and_a_taken_one_ends_the_start(
    zookeeper_hosts: str, tmp_path: Path
) -> None:
    port = free_ports(3)
    start = ["serve", "--zookeeper", zookeeper_hosts, "--data", str(tmp_path / "data"), "--processes", "2", "--no-http"]
    hoot = Hoot(zookeeper_hosts)
    with Child(*start, "--port", str(port)) as child:
        child.says("listens on", times=2)
        hosts: list[dict[str, Any]] = hoot.json("host", "list")
        assert sorted(host["port"] for host in hosts) == [port, port + 1]
        assert [host["http_port"] for host in hosts] == [None, None]
        with Child(*start, "--port", str(port + 1)) as second:
            assert second.wait() == 1
            assert any(f"{port + 1}" in line for line in second.errors)
        assert child.end(signal.SIGTERM) == 0


def test_ports_that_would_meet_are_refused_before_anything_starts(zookeeper_hosts: str, tmp_path: Path) -> None:
    hoot = Hoot(zookeeper_hosts)
    start = ["serve", "--data", str(tmp_path / "data"), "--processes", "3", "--port", "7000", "--http-port", "7002"]
    assert "too near" in hoot(*start, status=2).stderr
    assert json.loads(hoot(*start, "--json", status=2).stderr)["error"] == "bad_use"
    assert "too near" in hoot(*start, "--embedded", status=2).stderr
    assert not (tmp_path / "data").exists(), "no ZooKeeper was started either"
