"""Reads go on when partitions go to other hosts under them, and ask ZooKeeper for the owner only then.

Without a session: Spark only carries what the readers plan to those who read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from delivery import Client, NewMessage, connect
from delivery.errors import MetadataUnavailable
from delivery.metastore.catalog import Catalog
from delivery.spark import planning, reading
from delivery.spark.options import read_options
from delivery.spark.reading import Task
from delivery.spark.source import HootReader
from tests.integration.several import Several, several

pytestmark = [pytest.mark.integration, pytest.mark.spark]

COUNT, BODY = 400, b"x" * 1000


@pytest.fixture
def hosts(zookeeper_hosts: str, catalog: Catalog, tmp_path: Path) -> Iterator[Several]:
    with several(zookeeper_hosts, catalog, tmp_path, 2) as found:
        yield found


@pytest.fixture
def client(hosts: Several) -> Iterator[Client]:
    with connect(hosts.zookeeper) as connected:
        queue = connected.create_queue("rows", partitions=2)
        for at in range(0, COUNT, 20):
            queue.put_many([NewMessage(b"%d " % number + BODY, partition=number % 2) for number in range(at, at + 20)])
        yield connected


def planned(hosts: Several) -> tuple[HootReader, list[InputPartition]]:
    reader = HootReader(read_options({"queue": "rows", "zookeeper": hosts.zookeeper}))
    return reader, reader.partitions()


def bodies(parts: Any) -> list[bytes]:
    return [body for part in parts for body in part["value"].to_pylist()]


def sent() -> list[bytes]:
    return sorted(b"%d " % number + BODY for number in range(COUNT))


def test_partitions_that_move_and_hosts_that_are_killed_while_they_are_read_cost_no_row(
    client: Client, hosts: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "READ_BYTES", 40_000)
    reader, tasks = planned(hosts)
    under_way: list[Any] = [reader.read(task) for task in tasks]

    def more() -> list[bytes]:
        return [body for one in under_way for body in bodies([next(one)])]

    found = more()
    owner = hosts.owner("rows", 0)
    client.placement.move("rows", 0, hosts.hosts[1 - owner])
    found += more()
    assert hosts.owner("rows", 0) == 1 - owner
    hosts.processes[1 - owner].kill()
    found += more()
    hosts.processes[1 - owner].start()
    hosts.processes[owner].stop()
    found += [body for one in under_way for body in bodies(one)]
    assert sorted(found) == sent()


@pytest.mark.usefixtures("client")
def test_zookeeper_is_asked_only_when_the_owner_is_another_one_than_was_planned(
    hosts: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, tasks = planned(hosts)
    asked: list[str] = []

    def session(zookeeper: str) -> Any:
        asked.append(zookeeper)
        raise MetadataUnavailable("away")

    with monkeypatch.context() as without:
        without.setattr(planning, "_session", session)
        assert sorted(body for task in tasks for body in bodies(reader.read(task))) == sent()
    assert asked == []
    assert {task.owner for task in tasks if isinstance(task, Task)} <= {(one.address, one.port) for one in hosts.hosts}
    hosts.processes[hosts.owner("rows", 0)].kill()
    with monkeypatch.context() as without:
        without.setattr(planning, "_session", session)
        without.setattr(reading, "PATIENCE_SECONDS", 0.1)
        without.setattr(planning, "CALL_SECONDS", 0.1)
        with pytest.raises(MetadataUnavailable):
            [bodies(reader.read(task)) for task in tasks]
    assert set(asked) == {hosts.zookeeper}
    assert sorted(body for task in tasks for body in bodies(reader.read(task))) == sent()
