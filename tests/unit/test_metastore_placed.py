"""A cluster whose metadata is in ZooKeeper but for some kinds of it, which are in HBase."""

from __future__ import annotations

import msgspec
import pytest

import delivery.hbase
from delivery.errors import ConfigError, LayoutMismatch, MetadataUnavailable, StorageUnavailable
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers import layout
from delivery.metastore.managers.layout import KINDS, NOWHERE, TABLES, MetaLayout, read_layout
from delivery.metastore.placed import CLUSTER, PlacedMetaStore, hbase_place
from delivery.metastore.tables.base import HBasePlace
from delivery.metastore.znodes import ZNodes
from delivery.model import QueueSettings
from delivery.testing.znodes import Tree
from tests.hbase_tables import Data, FakeTables
from tests.metastore_managers import preferences
from tests.metastore_tables import refused
from tests.znodes import FakeZNodes

PLACE = hbase_place("subscriptions", "p", "g1:9090")
METADATA = "/hoot/metastore/tables"


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Data:
    """What is in HBase."""
    data: Data = {}
    monkeypatch.setattr(delivery.hbase, "Tables", lambda *_, **__: FakeTables(data))
    return data


def catalog(tree: Tree, place: HBasePlace | None = None) -> Catalog:
    zk = FakeZNodes(tree)
    return Catalog(zk, PlacedMetaStore(zk, zk, place))


def host(tree: Tree, place: HBasePlace = PLACE) -> Catalog:
    """That of a host that was set up so, and has started."""
    found = catalog(tree, place)
    found.ensure_layout()
    return found


def tables_of(zk: ZNodes) -> set[str]:
    return set(zk.children(METADATA) or ())


def test_each_kind_is_where_the_hosts_want_it_and_clients_find_it_there(data: Data) -> None:
    tree = Tree()
    record = host(tree).create_queue("q", QueueSettings())
    client = catalog(tree)
    mine = msgspec.structs.replace(preferences(), generation=record.generation)
    client.create_subscription(mine)
    assert client.queue("q") == record
    assert host(tree).subscriptions("q") == ["s"]
    assert catalog(tree).subscription("q", "s") == mine
    assert tables_of(FakeZNodes(tree)) == {"queues", "topics", "owners", "transactions", "persistence"}
    assert {row.split(b"\0")[0] for row in data["p.metastore"]} == {b"", b"subscriptions", b"states", b"snapshots"}


def test_everything_may_be_in_hbase(data: Data) -> None:
    tree = Tree()
    there = host(tree, hbase_place(" queues,ownership, persistence,subscriptions ", "p", "g"))
    there.create_queue("q", QueueSettings())
    assert there.claim("q", 0, "h", 1, -1).epoch == 1
    assert catalog(tree).partition("q", 0)[0] == there.partition("q", 0)[0]
    assert tables_of(FakeZNodes(tree)) == set()
    assert len(data["p.metastore"]) == 1 + len(TABLES) + 2


def test_a_host_that_is_set_up_otherwise_does_not_start(data: Data) -> None:
    tree = Tree()
    host(tree)
    before = dict(tree.nodes)
    for place, said in (
        (NOWHERE, r"keeps subscriptions \(tables p\.\*\) in HBase, and this host is set up to keep nothing there"),
        (hbase_place("subscriptions", "other", "g1"), r"to keep subscriptions \(tables other\.\*\) there"),
        (hbase_place("subscriptions,queues", "p", "g1"), r"to keep queues, subscriptions \(tables p\.\*\) there"),
    ):
        with pytest.raises(LayoutMismatch, match=said):
            host(tree, place)
    assert tree.nodes == before
    plain = Tree()
    host(plain, NOWHERE)
    with pytest.raises(LayoutMismatch, match="keeps nothing in HBase"):
        host(plain)
    assert set(data) == {"p.metastore"}


def test_other_gateways_are_told_to_clients(data: Data) -> None:
    tree = Tree()
    host(tree)
    host(tree, hbase_place("subscriptions", "p", "g2,g3"))
    assert data
    found = read_layout(FakeZNodes(tree))
    assert found == MetaLayout("zookeeper", 1, hbase=HBasePlace(("subscriptions",), "p", "g2,g3"))


def test_without_hbase_the_layout_is_what_it_always_was() -> None:
    tree = Tree()
    host(tree, NOWHERE)
    assert FakeZNodes(tree).get(layout.PATH) == (
        b'{"metastore":"zookeeper","metastore_version":1,"managers_version":1}',
        0,
    )
    assert FakeZNodes(tree).get(CLUSTER) is None


def test_another_cluster_does_not_get_at_the_metadata_of_this_one(data: Data) -> None:
    tree, other = Tree(), Tree()
    host(tree).create_queue("q", QueueSettings())
    before = {row: dict(cells) for row, cells in data["p.metastore"].items()}
    with pytest.raises(LayoutMismatch, match="none of this cluster's: it belongs to the cluster"):
        host(other)
    assert read_layout(FakeZNodes(other)) is None, "it can be set up for another prefix"
    host(other, hbase_place("subscriptions", "p2", "g1"))
    assert data["p.metastore"] == before


def test_a_cluster_whose_table_of_hbase_is_gone_does_not_start_with_an_empty_one(data: Data) -> None:
    tree = Tree()
    host(tree)
    data.clear()
    with pytest.raises(LayoutMismatch, match=r"HBase has no table p\.metastore"):
        host(tree)
    assert data == {}


def test_a_first_start_without_hbase_leaves_the_cluster_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> dict[str, int | None]:
        raise StorageUnavailable("nobody answers")

    tree = Tree()
    with monkeypatch.context() as patched:
        patched.setattr(delivery.hbase, "Tables", lambda *_, **__: FakeTables({}))
        patched.setattr(FakeTables, "families", away)
        assert refused(host, tree) is MetadataUnavailable
    assert read_layout(FakeZNodes(tree)) is None
    host(tree, NOWHERE)


def test_formatting_wipes_both_and_lets_hosts_of_another_setting_start(data: Data) -> None:
    tree = Tree()
    there = host(tree)
    generation = there.create_queue("q", QueueSettings()).generation
    there.create_subscription(msgspec.structs.replace(preferences(), generation=generation))
    there.format()
    host(tree, NOWHERE).format()
    again = host(tree)
    assert again.queues() == []
    again.create_queue("q", QueueSettings())
    assert again.subscriptions("q") == []
    data.clear()
    again.format()
    assert read_layout(FakeZNodes(tree)) is None, "what was dropped in HBase is in nobody's way"


def test_formatting_what_cannot_be_read_leaves_nothing_that_counts(data: Data) -> None:
    tree = Tree()
    host(tree).create_queue("q", QueueSettings())
    FakeZNodes(tree).set(layout.PATH, b"damaged")
    catalog(tree).format()
    with pytest.raises(LayoutMismatch, match="belongs to the cluster"):
        host(tree)
    assert data


def test_kinds_that_are_none_are_told() -> None:
    with pytest.raises(ConfigError, match="'states' is none of ownership, persistence, queues, subscriptions"):
        hbase_place("subscriptions,states", "p", "g")
    assert hbase_place(" , ", "p", "g") == NOWHERE
    assert sorted(TABLES) == sorted(table for tables in KINDS.values() for table in tables)
