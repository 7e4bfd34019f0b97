"""The catalog against a real ZooKeeper: layout, queues and hosts."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from delivery.errors import (
    CorruptRecord,
    InvalidRequest,
    LayoutMismatch,
    MetadataUnavailable,
    QueueExists,
    UnknownQueue,
)
from delivery.metastore import records
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.managers import layout
from delivery.metastore.managers.changes import TakeState
from delivery.metastore.managers.queues import QueueManager
from delivery.metastore.managers.records import PersistenceInfo, SealedRange, SubscriptionState
from delivery.metastore.managers.subscriptions import SubscriptionDataManager
from delivery.metastore.partitions import NEVER_OWNED
from delivery.metastore.tables.versions import Version
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from tests.integration.metastore import (
    Interposed,
    at_once,
    catalog_over,
    corrupt,
    entry,
    host,
    listener,
    make_queue,
    subscription,
)

pytestmark = pytest.mark.integration
BAD_NAMES = ["", ".", "..", "a/b", "%2e%2e/x%", "a\r\nb", "a\x00b", "é", "a b", "x" * 250, "x" * 10_000]


# -- layout


def test_the_layout_is_made_once_and_by_many_at_once(zk: ZooKeeperClient) -> None:
    assert at_once([open_catalog(zk).ensure_layout] * 8) == [None] * 8
    found = zk.get(layout.PATH)
    assert found is not None
    assert msgspec.json.decode(found[0]) == {"metastore": "zookeeper", "metastore_version": 1, "managers_version": 1}
    assert (zk.children(records.HOSTS), zk.children(records.LISTENERS)) == ([], [])
    assert zk.children("/hoot/metastore/tables") == sorted(layout.TABLES)


@pytest.mark.parametrize(
    "value", [b'{"metastore":"hbase","metastore_version":1}', b'{"metastore":"zookeeper","metastore_version":2}',
              b'{"version":1}', b"???", b""],
)  # fmt: skip
def test_a_tree_of_another_layout_is_refused_and_left_alone(zk: ZooKeeperClient, value: bytes) -> None:
    zk.create(records.ROOT)
    zk.create(layout.FOLDER)
    zk.create(layout.PATH, value)
    for call in (open_catalog(zk).ensure_layout, open_catalog(zk).queues, partial(open_catalog(zk).queue, "q")):
        with pytest.raises(LayoutMismatch):
            call()
    assert (zk.children(records.ROOT), zk.children(layout.FOLDER)) == (["metastore"], ["layout"])
    assert zk.get(layout.PATH) == (value, 0)


def test_without_a_layout_nothing_is_listed_and_nothing_is_created(zk: ZooKeeperClient) -> None:
    catalog = open_catalog(zk)
    assert (catalog.queues(), catalog.hosts(), catalog.queue_records()) == ([], [], [])
    for create in (lambda: catalog.create_queue("q", QueueSettings()), lambda: catalog.register_host(host())):
        with pytest.raises(MetadataUnavailable):
            create()
    assert not zk.exists(records.ROOT)


# -- queues


def test_a_queue_is_created_and_found_again(catalog: Catalog) -> None:
    settings = QueueSettings(partitions=3, durability="os", ttl_seconds=60.0, retention_bytes=1 << 30)
    made = catalog.create_queue("flights", settings)
    assert (made.name, made.settings) == ("flights", settings)
    assert catalog.queue("flights") == made
    assert catalog.create_queue("other", settings).generation != made.generation


def test_a_queue_that_exists_is_not_created_again(catalog: Catalog) -> None:
    made = catalog.create_queue("q", QueueSettings(partitions=3))
    with pytest.raises(QueueExists, match="'q'"):
        catalog.create_queue("q", QueueSettings())
    assert catalog.queue("q") == made


def test_of_many_who_create_the_same_queue_one_does(catalog: Catalog) -> None:
    outcomes = at_once([lambda: catalog.create_queue("q", QueueSettings())] * 6)
    assert [type(outcome) for outcome in outcomes].count(QueueExists) == 5
    assert catalog.queue("q") in outcomes


def test_when_the_answer_to_a_creation_is_lost_the_queue_is_recognised_as_ones_own(
    catalog: Catalog, zk: ZooKeeperClient
) -> None:
    between = Interposed(zk)
    through = catalog_over(between)
    through.create_queue("q", QueueSettings())  # so that its bucket is known, and the next transaction makes a queue
    through.delete_queue("q")
    between.lose_answer = True
    assert through.create_queue("q", QueueSettings()) == catalog.queue("q")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_outside_the_limits_are_refused_everywhere(catalog: Catalog, zk: ZooKeeperClient, name: str) -> None:
    make_queue(catalog)
    for call in (
        lambda: catalog.create_queue(name, QueueSettings()),
        lambda: catalog.queue(name),
        lambda: catalog.delete_queue(name),
        lambda: catalog.owners(name),
        lambda: catalog.claim(name, 0, "h", 1, NEVER_OWNED),
        lambda: catalog.subscription("q", name),
        lambda: catalog.listener("q", name),
        lambda: catalog.listeners(name),
        lambda: catalog.delete_subscription("q", name),
        lambda: catalog.create_subscription(subscription("q", name)),
        lambda: catalog.attach("q", name, listener()),
        lambda: catalog.states("q", name),
        lambda: catalog.host(name),
        lambda: catalog.register_host(host(name)),
    ):
        with pytest.raises(InvalidRequest) as caught:
            call()
        assert len(caught.value.message) < 300
        assert caught.value.message.isprintable()
    assert catalog.queues() == ["q"]


def test_settings_outside_their_limits_are_refused(catalog: Catalog) -> None:
    for partitions in (0, -1, 32768):
        with pytest.raises(InvalidRequest, match="partitions"):
            catalog.create_queue("q", QueueSettings(partitions=partitions))
    assert catalog.queues() == []


def test_an_unknown_queue_is_answered_with_names_that_come_near(catalog: Catalog) -> None:
    for name in ("flights", "fights", "weather"):
        catalog.create_queue(name, QueueSettings())
    for call in (catalog.queue, catalog.delete_queue, catalog.subscriptions, catalog.listeners, catalog.owners):
        with pytest.raises(UnknownQueue, match="flights or fights") as caught:
            call("flightz")
        assert "weather" not in caught.value.message
    with pytest.raises(UnknownQueue, match="hoot queue create zzz"):
        catalog.queue("zzz")
    with pytest.raises(UnknownQueue):
        catalog.update_queue("zzz", lambda present: present)


def test_settings_change_but_the_number_of_partitions_stays(catalog: Catalog) -> None:
    made = catalog.create_queue("q", QueueSettings(partitions=2))
    changed = catalog.update_queue("q", lambda _: QueueSettings(partitions=2, durability="memory"))
    assert changed == msgspec.structs.replace(made, settings=QueueSettings(partitions=2, durability="memory"))
    with pytest.raises(InvalidRequest, match="2 partitions"):
        catalog.update_queue("q", lambda _: QueueSettings(partitions=3))
    with pytest.raises(InvalidRequest, match="body limit"):
        catalog.update_queue("q", lambda _: QueueSettings(partitions=2, body_bytes_max=0))
    assert catalog.queue("q") == changed


def test_a_change_that_meets_another_is_made_on_top_of_it(catalog: Catalog, zk: ZooKeeperClient) -> None:
    catalog.create_queue("q", QueueSettings())
    between = Interposed(zk)
    between.before = lambda: catalog.update_queue("q", partial(msgspec.structs.replace, ttl_seconds=5.0))
    changed = catalog_over(between).update_queue("q", partial(msgspec.structs.replace, closed=True))
    assert changed.settings == QueueSettings(ttl_seconds=5.0, closed=True)
    assert catalog.queue("q") == changed == catalog_over(between).update_queue("q", lambda present: present)
    assert len(between.transactions) == 2, "and what changes nothing is not written"


def filled(catalog: Catalog) -> None:
    make_queue(catalog, settings=QueueSettings(partitions=3))
    catalog.claim("q", 0, "h", 1, NEVER_OWNED)
    catalog.claim("q", 2, "h", 1, NEVER_OWNED)
    for name in ("s", "t"):
        catalog.create_subscription(subscription("q", name))
    catalog.attach("q", "s", listener())
    [_] = catalog.take_states([TakeState(subscription("q", "s"), 0, 1)])
    sealed = PersistenceInfo((SealedRange(1, 1, 2),))
    catalog.managers.persistence.write_topic_persistence_info("q", 0, sealed, Version.NEW)


def keys(zk: ZooKeeperClient, table: str) -> list[str]:
    """All keys of a table, as its entries say and as its order says, if it has one."""
    with ZooKeeperMetaStore(zk, zk).create_table(table).open_cursor() as cursor:
        found: list[str] = []
        while cursor.has_more_entries():
            found += cursor.read_keys(100)
    return found


def test_a_deleted_queue_leaves_nothing_and_its_name_is_free(catalog: Catalog, zk: ZooKeeperClient) -> None:
    filled(catalog)
    catalog.create_queue("q2", QueueSettings())
    generation = catalog.queue("q").generation
    catalog.delete_queue("q")
    assert (catalog.queues(), zk.children(records.LISTENERS)) == (["q2"], [])
    assert {table: keys(zk, table) for table in layout.TABLES} == {
        "queues": ["q2"], "owners": [], "persistence": [], "subscriptions": [], "states": [],
        "snapshots": [], "topics": [], "transactions": [],
    }  # fmt: skip
    with pytest.raises(UnknownQueue):
        catalog.delete_queue("q")
    assert catalog.create_queue("q", QueueSettings()).generation != generation
    assert (catalog.subscriptions("q"), catalog.owners("q"), catalog.listeners("q")) == ([], {}, [])


def test_a_deletion_that_breaks_off_anywhere_leaves_a_queue_that_can_be_deleted_again(
    catalog: Catalog, zk: ZooKeeperClient
) -> None:
    breaks = 0
    while True:
        filled(catalog)
        between = Interposed(zk)
        through = catalog_over(between)
        between.down_after = breaks
        try:
            through.delete_queue("q")
        except MetadataUnavailable:
            breaks += 1
            assert catalog.queues() == ["q"]
            assert catalog.queue("q").name == "q"
            catalog.delete_queue("q")
        else:
            break
    assert breaks > 5, "listeners, subscriptions, states, owners, ranges, the record"
    assert (catalog.queues(), keys(zk, "subscriptions"), keys(zk, "states"), keys(zk, "owners")) == ([], [], [], [])


def test_a_deletion_meets_a_subscriber_who_attaches_meanwhile(catalog: Catalog, zk: ZooKeeperClient) -> None:
    filled(catalog)
    between = Interposed(zk)
    through = catalog_over(between)
    between.before = lambda: setattr(
        between, "before", lambda: catalog.attach("q", "t", listener("late"))
    )  # after the listeners were taken off, before the subscriptions go
    through.delete_queue("q")
    assert (catalog.queues(), keys(zk, "subscriptions"), zk.children(records.LISTENERS)) == ([], [], [])


def test_lists_are_whole_and_sorted_and_hold_nothing_of_others(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(catalog)
    monkeypatch.setattr(QueueManager.list_queue_names, "__defaults__", (None, 2))
    monkeypatch.setattr(SubscriptionDataManager.list_subscription_names, "__defaults__", (None, 1))
    for name in ("q2", "p", "q.1", "q-"):
        catalog.create_queue(name, QueueSettings())
    assert catalog.queues() == sorted(["q", "q2", "p", "q.1", "q-"])
    assert [record.name for record in catalog.queue_records()] == catalog.queues()
    assert catalog.subscriptions("q") == ["s", "t"]
    assert catalog.listeners("q") == ["s"]
    assert sorted(catalog.owners("q")) == [0, 2]
    assert catalog.states("q", "s") == {0: SubscriptionState(0, 1, "g", 1)}


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff\xfe", entry("queue", b"{}"), entry("queue", b"[]"), entry("other", b"{}"),
     entry("queue", b'{"name":"other","generation":"g","created_ms":1,"settings":{}}'),
     *(entry("queue", b'{"name":"q","generation":"g","created_ms":1,"settings":{%s}}' % settings) for settings in (
         b'"partitions":0', b'"partitions":-1', b'"ttl_seconds":-1', b'"retention_bytes":-1', b'"body_bytes_max":-1',
         b'"partitions":1,"colour":"red"',
     ))],
)  # fmt: skip
def test_a_foreign_queue_record_is_named_and_can_still_be_deleted(
    catalog: Catalog, zk: ZooKeeperClient, value: bytes
) -> None:
    filled(catalog)
    corrupt(zk, "queues", "q", value)
    for call in (partial(catalog.queue, "q"), catalog.queue_records):
        with pytest.raises(CorruptRecord, match="entry 'q' of table queues"):
            call()
    assert catalog.queues() == ["q"]
    catalog.delete_queue("q")
    assert (catalog.queues(), keys(zk, "owners")) == ([], [])


# -- hosts


def test_a_host_is_listed_for_as_long_as_its_session_lives(catalog: Catalog, zookeeper_hosts: str) -> None:
    with ZooKeeperClient(zookeeper_hosts) as other:
        for name in ("h2", "h1"):
            open_catalog(other).register_host(host(name))
        assert catalog.hosts() == [host("h1"), host("h2")]
        assert catalog.host("h1") == host("h1")
    assert catalog.hosts() == []
    assert catalog.host("h1") is None


def test_a_host_that_registers_again_is_listed_under_its_present_session(
    catalog: Catalog, zookeeper_hosts: str
) -> None:
    """After a lost session, when the old registration has not gone yet."""
    with ZooKeeperClient(zookeeper_hosts) as old:
        open_catalog(old).register_host(host("h1", session=1))
        catalog.register_host(host("h1", session=2))
    assert catalog.hosts() == [host("h1", session=2)]


@pytest.mark.parametrize("value", [b"", b"{}", msgspec.json.encode(host("h2")), msgspec.json.encode(host(port=0))])
def test_a_foreign_host_record_is_named(catalog: Catalog, zk: ZooKeeperClient, value: bytes) -> None:
    zk.create(records.host_path("h1"), value)
    for call in (catalog.hosts, lambda: catalog.host("h1")):
        with pytest.raises(CorruptRecord, match="/hoot/hosts/h1"):
            call()
