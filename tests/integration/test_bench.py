"""`hoot bench` with real processes: the partitions are dealt out to the hosts, and what is printed was delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delivery import connect
from delivery.bench import http
from delivery.bench.cases import Setup, _queue, drain, filter as filter_case, live
from delivery.local import LocalEngine
from tests.integration.cli.running import Hoot

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MESSAGES = 30_000
HTTP: list[tuple[str, dict[str, Any]]] = [
    ("http-publish", {"messages": 120, "connections": 4}),
    ("http-publish", {"messages": 1200, "connections": 3, "per_request": 100}),
    ("http-poll", {"messages": 100, "rate": 500.0}),
    ("http-wait", {"messages": 1, "connections": 20}),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    with LocalEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


def test_two_hosts_own_half_of_the_partitions_each_and_every_message_is_delivered(tmp_path: Path) -> None:
    with LocalEngine(tmp_path, processes=2) as engine, connect(engine.address) as client:
        assert len(client.hosts()) == 2
        setup = Setup(client, engine.address, tmp_path, 100, MESSAGES, "os", partitions=4)
        with _queue(setup) as queue:
            owners = [one.host for one in client.placement.owners(queue.name)]
            assert owners[0] is not None
            assert owners[1] is not None
            assert owners == [owners[0], owners[1]] * 2
            assert owners[0].host != owners[1].host
        for case in (live, drain):
            found = case(setup)
            assert (found.partitions, found.processes, found.messages) == (4, 2, MESSAGES)
            assert found.messages_per_second > 0


def test_the_command_runs_as_many_hosts_as_it_is_asked_for(zookeeper_hosts: str) -> None:
    hoot = Hoot(zookeeper_hosts)
    bench = ("bench", "live", "--messages", str(MESSAGES), "--partitions", "2")
    found = hoot.json(*bench, "--processes", "2")
    assert (found["case"], found["partitions"], found["processes"]) == ("live", 2, 2)
    assert "2 partitions, 1 process)" in hoot(*bench).stdout


@pytest.mark.parametrize(("case", "options"), HTTP)
def test_topics_are_measured_over_http(
    tmp_path: Path, engine: LocalEngine, case: str, options: dict[str, Any]
) -> None:  # fmt: skip
    with connect(engine.address) as client:
        setup = Setup(client, engine.address, tmp_path, 100, durability="fsync", host_pid=engine.host.pid, **options)
        found = http.CASES[case](setup)
    assert found.case == case
    assert found.messages_per_second > 0
    assert (found.requests_per_second is None) == (case != "http-publish")
    assert (found.host_mib is None) == (case != "http-wait")


@pytest.mark.parametrize(
    "options",
    [{}, {"apart": True}, {"expression": "body.n < 20 AND topic LIKE 'w%'"}, {"selectivity": 1.0}],
    ids=["mixed", "apart", "expression", "all"],
)
def test_a_filter_is_measured_by_what_it_scanned(tmp_path: Path, engine: LocalEngine, options: dict[str, Any]) -> None:
    with connect(engine.address) as client:
        found = filter_case(Setup(client, engine.address, tmp_path, 100, MESSAGES, "os", **options))
    assert MESSAGES - 5_000 < found.messages <= MESSAGES
    assert found.messages_per_second > 0
