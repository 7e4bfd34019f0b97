"""`hoot bench` with real processes: the partitions are dealt out to the hosts, and what is printed was delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delivery import connect
from delivery.bench.cases import Setup, _queue, drain, filter as filter_case, live
from delivery.local import LocalEngine
from tests.integration.cli.running import Hoot
from tests.integration.engine import Engine

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MESSAGES = 30_000


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


@pytest.mark.parametrize(
    "options",
    [{}, {"apart": True}, {"expression": "body.n < 20 AND topic LIKE 'w%'"}, {"selectivity": 1.0}],
    ids=["mixed", "apart", "expression", "all"],
)
def test_a_filter_is_measured_by_what_it_scanned(tmp_path: Path, running: Engine, options: dict[str, Any]) -> None:
    with connect(running.address) as client:
        found = filter_case(Setup(client, running.address, tmp_path, 100, MESSAGES, "os", **options))
    assert MESSAGES - 5_000 < found.messages <= MESSAGES
    assert found.messages_per_second > 0
