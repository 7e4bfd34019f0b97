"""The stores that the contract suites run over."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delivery.embedded import EmbeddedZooKeeper
from delivery.hbase import Tables, parse_gateways
from delivery.metastore.tables.base import MetaStore, MetastoreScannableTable, MetastoreTable
from delivery.metastore.tables.hbase import HBaseMetaStore
from delivery.metastore.tables.memory import MemoryData, MemoryMetaStore
from delivery.metastore.tables.rows import SWAPS_AT_ONCE
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from delivery.storage.base import MessageStore
from delivery.storage.hbase import HBaseStore
from delivery.storage.log import SegmentedLog
from delivery.storage.memory import MemoryDisk, MemoryStore
from delivery.testing.znodes import Tree
from tests.applications import KitWorld, RealWorld, World
from tests.hbase_tables import Data, FakeTables
from tests.integration.engine import hosted
from tests.stores import KEY, OTHER, LogAtOnce
from tests.znodes import FakeZNodes

Host = Callable[[], MessageStore]
StartStore = Callable[[], MetaStore]
KEEP = QueueSettings()


@pytest.fixture(
    params=[
        "memory", "log", "log at once", "rows in memory", "batches in memory",
        pytest.param("rows", marks=pytest.mark.hbase), pytest.param("batches", marks=pytest.mark.hbase),
    ]
)  # fmt: skip
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    """One more store on the same storage: in memory, in a folder (the usual way, and at once where that can be), or in
    HBase's tables, real ones or in memory."""
    disk = MemoryDisk()
    data: Data = {}
    stores: list[MessageStore] = []
    kind, _, in_memory = request.param.partition(" ")
    prefix = f"t{secrets.token_hex(6)}"

    def make() -> MessageStore:
        if kind == "memory":
            return MemoryStore(disk)
        if request.param == "log at once":
            return LogAtOnce(tmp_path, segment_bytes=100_000)
        if kind == "log":
            return SegmentedLog(tmp_path, segment_bytes=100_000)
        tables = FakeTables(data) if in_memory else Tables(parse_gateways(request.getfixturevalue("hbase_gateways")))
        return HBaseStore(tables, prefix=prefix, layout=kind)

    def start() -> MessageStore:
        store = make()
        stores.append(store)
        return store

    yield start
    for store in stores:
        store.close()


@pytest.fixture
def store(host: Host) -> MessageStore:
    """A store with two partitions open under epoch 1."""
    store = host()
    store.open(KEY, 1, KEEP)
    store.open(OTHER, 1, KEEP)
    return store


@pytest.fixture(
    params=[
        "memory", "znodes", "cells", pytest.param("zookeeper", marks=pytest.mark.integration),
        pytest.param("hbase", marks=pytest.mark.hbase),
    ]
)  # fmt: skip
def start_metastore(request: pytest.FixtureRequest) -> Iterator[StartStore]:
    """Makes one more MetaStore on the same data, as another process would: in memory, the layout of ZooKeeper's on
    znodes in memory and in a real ZooKeeper, that of HBase's on tables in memory and in a real HBase."""
    data, tree = MemoryData(), Tree()
    cells: Data = {}
    hosts = request.getfixturevalue("zookeeper_hosts") if request.param == "zookeeper" else ""
    gateways = request.getfixturevalue("hbase_gateways") if request.param == "hbase" else ""
    prefix = f"t{secrets.token_hex(6)}"
    with contextlib.ExitStack() as ending:

        def in_hbase() -> MetaStore:
            tables = Tables(parse_gateways(gateways)) if gateways else FakeTables(cells)
            at_once = SWAPS_AT_ONCE if gateways else 1
            store = HBaseMetaStore(tables, prefix, "c", poll_seconds=0.2 if gateways else 0.01, swaps_at_once=at_once)
            ending.callback(store.close)
            store.prepare()
            return store

        def start() -> MetaStore:
            if request.param == "memory":
                return MemoryMetaStore(data)
            if request.param in ("cells", "hbase"):
                return in_hbase()
            zk = ending.enter_context(ZooKeeperClient(hosts)) if hosts else FakeZNodes(tree)
            store = ZooKeeperMetaStore(zk, zk)
            ending.callback(store.close)
            return store

        yield start


@pytest.fixture
def metastore(start_metastore: StartStore) -> MetaStore:
    return start_metastore()


@pytest.fixture(params=["plain", "scannable"])
def table(request: pytest.FixtureRequest, metastore: MetaStore) -> MetastoreTable:
    """A table of either kind."""
    return metastore.create_table("t") if request.param == "plain" else metastore.create_scannable_table("t")


@pytest.fixture
def scannable(metastore: MetaStore) -> MetastoreScannableTable:
    return metastore.create_scannable_table("t")


@pytest.fixture(scope="session")
def served(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The ZooKeeper of a region host that runs as a process."""
    with hosted(zookeeper, tmp_path_factory.mktemp("engine")) as running:
        yield running.address


@pytest.fixture(params=["kit", pytest.param("engine", marks=pytest.mark.integration)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Where an application runs: the engine of the test kit, and a real one."""
    made = KitWorld() if request.param == "kit" else RealWorld(request.getfixturevalue("served"))
    try:
        yield made
    finally:
        made.close()
