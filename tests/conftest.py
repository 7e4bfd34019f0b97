"""What tests of all folders share: a real ZooKeeper and a real HBase for the whole run, each begun when a test
asks for it, and a tree of one's own in ZooKeeper for each test."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from delivery.embedded import EmbeddedZooKeeper
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from tests.hbase import __main__ as running
from tests.hbase.server import HBase
from tests.postgres import Postgres
from tests.workers import pytest_xdist_auto_num_workers, pytest_xdist_make_scheduler

__all__ = ["pytest_xdist_auto_num_workers", "pytest_xdist_make_scheduler"]

# What Spark runs here lasts seconds: its Java need not compile as for hours, nor collect with a thread per processor.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# How long an example takes is no property of the code: it depends on what else the machine does.
settings.register_profile("hoot", deadline=None, max_examples=40)
settings.register_profile("nightly", deadline=None, max_examples=400)  # see the Makefile
settings.load_profile("hoot")

# A shell's background jobs ignore Ctrl-C, what nohup starts ignores a closed terminal, and programs inherit that.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A running ZooKeeper. Tests that stop, pause or kill one start their own."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def hbase_gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Thrift gateways of a running HBase, as `host:port,…`: that of `make hbase` if one runs, else one of this run.

    Tests that stop, pause or kill one start their own.
    """
    if (gateways := running.gateways()) is not None:
        yield gateways
        return
    with HBase(tmp_path_factory.mktemp("hbase")) as server:
        yield server.thrift


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a running PostgreSQL."""
    with Postgres() as server:
        yield server.url


@pytest.fixture
def zookeeper_hosts(zookeeper: EmbeddedZooKeeper) -> str:
    """The address of `zookeeper` with a folder for this test alone, which the first client creates."""
    return f"{zookeeper.address}/test-{secrets.token_hex(6)}"


@pytest.fixture
def zk(zookeeper_hosts: str) -> Iterator[ZooKeeperClient]:
    """A session in the test's folder."""
    with ZooKeeperClient(zookeeper_hosts) as client:
        yield client


@pytest.fixture
def catalog(zk: ZooKeeperClient) -> Catalog:
    """The catalog of an empty, laid-out tree in the test's folder."""
    catalog = open_catalog(zk)
    catalog.ensure_layout()
    return catalog
