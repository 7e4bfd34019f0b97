"""What the image of HBase runs, run by hand: a master, a region server and a gateway on a ZooKeeper of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from delivery.embedded import EmbeddedZooKeeper
from delivery.embedded.java import find_java
from delivery.embedded.ports import free_port
from tests.hbase.jars import IMAGE, hbase_jars
from tests.hbase.processes import Guarded
from tests.hbase.server import problem
from tests.integration.embedded import eventually

pytestmark = [pytest.mark.hbase, pytest.mark.slow]
HOST = "127.0.0.1"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[list[Guarded], int]]:
    """The programs, and the port of the gateway."""
    port = free_port(None)
    environment = {
        "HBASE_QUORUM": HOST, "HBASE_HOST": HOST, "HBASE_ROOTDIR": (tmp_path / "data").as_uri(),
        "HBASE_CONF": str(IMAGE), "HBASE_LIB": str(hbase_jars()[0].parent), "HBASE_HEAP": "512m",
        "HBASE_THRIFT_PORT": str(port), "JAVA_HOME": str(find_java().executable.parents[1]), "JAVA_TOOL_OPTIONS": QUICK,
    }  # fmt: skip
    with ExitStack() as ending:
        zookeeper = ending.enter_context(EmbeddedZooKeeper(tmp_path / "zookeeper"))
        lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        ending.callback(os.close, lock)
        environment["HBASE_ZOOKEEPER_PORT"] = zookeeper.address.rpartition(":")[2]
        variables = [f"{name}={value}" for name, value in environment.items()]
        ports = [f"-Dhbase.{name}.port={free_port(None)}" for name in ("master", "regionserver")]
        found = []
        for role, settings in (("master", ports[:1]), ("regionserver", ports[1:]), ("thrift", [])):
            command = ["/usr/bin/env", *variables, str(IMAGE / "start"), role, *settings]
            found.append(Guarded(role, command, tmp_path, lock))
        for program in found:
            ending.callback(program.kill)
            program.start()
        yield found, port


def test_rows_are_put_and_read_through_the_gateway_that_the_image_starts(
    gateway: tuple[list[Guarded], int],
) -> None:
    programs, port = gateway

    def ready() -> bool:
        for program in programs:
            assert program.alive, program.said(30)
        return problem(HOST, port) is None

    eventually(ready, "a row is put and read", 150.0)
