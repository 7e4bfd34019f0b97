"""Owners and sealed ranges of partitions, and the layout of a cluster, over any MetaStore (seed 000)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from delivery.errors import BadVersion, CorruptRecord, HootError, InvalidRequest, LayoutMismatch
from delivery.ids import ID_MAX
from delivery.metastore.errors import NoOwnerInfo, NoPersistenceInfo, OwnerInfoExists, PersistenceInfoExists
from delivery.metastore.managers import layout
from delivery.metastore.managers.layout import MetaLayout, ensure_layout, format_metastore, read_layout
from delivery.metastore.managers.ownership import TopicOwnershipManager
from delivery.metastore.managers.persistence import TopicPersistenceManager
from delivery.metastore.managers.records import OwnerInfo, PersistenceInfo, SealedRange
from delivery.metastore.managers.subscriptions import SubscriptionDataManager
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.memory import MemoryMetaStore
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from delivery.metastore.znodes import ZNodes
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.testing.znodes import Tree
from tests.metastore_managers import OWNER, SEALED, preferences
from tests.metastore_tables import ANY, NEW, StartStore, refused
from tests.znodes import FakeZNodes

# -- ownership: TestMetadataManager.testOwnerInfo -------------------------------------------------------------------


def test_the_owner_of_a_partition_moves_by_compare_and_set(metastore: MetaStore) -> None:
    owners = TopicOwnershipManager(metastore)
    assert owners.read_owner_info("q", 0) is None
    for version in (ANY, Version(0), Version(9)):
        assert refused(owners.write_owner_info, "q", 0, OWNER, version) is NoOwnerInfo
    for version in (ANY, NEW, Version(0)):
        assert refused(owners.delete_owner_info, "q", 0, version) is NoOwnerInfo
    first = owners.write_owner_info("q", 0, OWNER, NEW)
    assert owners.read_owner_info("q", 0) == Versioned(OWNER, first)
    assert refused(owners.write_owner_info, "q", 0, OWNER, NEW) is OwnerInfoExists
    assert refused(owners.write_owner_info, "q", 0, OWNER, Version(9)) is BadVersion
    assert refused(owners.delete_owner_info, "q", 0, Version(9)) is BadVersion
    other = OwnerInfo("h2", 8, 2)
    second = owners.write_owner_info("q", 0, other, first)
    assert refused(owners.write_owner_info, "q", 0, OWNER, first) is BadVersion
    assert refused(owners.delete_owner_info, "q", 0, first) is BadVersion
    assert owners.read_owner_info("q", 0) == Versioned(other, second)
    assert owners.read_owner_info("q", 1) is None
    owners.delete_owner_info("q", 0, second)
    assert owners.read_owner_info("q", 0) is None


def test_many_owners_are_read_and_written_at_once_and_listed_by_page(metastore: MetaStore) -> None:
    owners = TopicOwnershipManager(metastore)
    places = [(f"q{at % 3}", at) for at in range(300)]
    outcomes = owners.write_owner_infos([(queue, number, OwnerInfo("h", 1, 1), NEW) for queue, number in places])
    assert outcomes == [Version(0)] * 300
    again = owners.write_owner_infos([("q0", 0, OWNER, Version(0)), ("q1", 1, OWNER, NEW), ("q1", 0, OWNER, ANY)])
    assert [type(one) for one in again] == [Version, OwnerInfoExists, NoOwnerInfo]
    assert owners.read_owner_infos([("q0", 0), ("none", 0)]) == [Versioned(OWNER, Version(1)), None]
    pages = list(owners.owner_info_pages(70))
    assert all(len(page) <= 70 for page in pages)
    assert sorted((queue, number) for page in pages for queue, number, _ in page) == sorted(places)


def test_of_many_who_claim_a_partition_at_once_one_becomes_the_owner(start_metastore: StartStore) -> None:
    managers = [TopicOwnershipManager(start_metastore()) for _ in range(3)]
    ready = threading.Barrier(12)

    def claim(number: int) -> HootError | None:
        ready.wait(20)
        try:
            managers[number % 3].write_owner_info("q", 0, OwnerInfo(f"h{number}", number, 1), NEW)
        except HootError as error:
            return error
        return None

    with ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(claim, range(12)))
    found = managers[0].read_owner_info("q", 0)
    assert found is not None
    assert [type(one) for one in outcomes if one is not None] == [OwnerInfoExists] * 11
    assert found.value.host == f"h{outcomes.index(None)}"


# -- persistence: testPersistenceInfo -------------------------------------------------------------------------------


def test_the_sealed_ranges_of_a_partition_move_by_compare_and_set(metastore: MetaStore) -> None:
    infos = TopicPersistenceManager(metastore)
    assert infos.read_topic_persistence_info("q", 0) is None
    for version in (ANY, Version(0)):
        assert refused(infos.write_topic_persistence_info, "q", 0, SEALED, version) is NoPersistenceInfo
        assert refused(infos.delete_topic_persistence_info, "q", 0, version) is NoPersistenceInfo
    first = infos.write_topic_persistence_info("q", 0, PersistenceInfo(()), NEW)
    assert refused(infos.write_topic_persistence_info, "q", 0, SEALED, NEW) is PersistenceInfoExists
    assert refused(infos.write_topic_persistence_info, "q", 0, SEALED, Version(9)) is BadVersion
    second = infos.write_topic_persistence_info("q", 0, SEALED, first)
    assert infos.read_topic_persistence_info("q", 0) == Versioned(SEALED, second)
    assert refused(infos.delete_topic_persistence_info, "q", 0, first) is BadVersion
    infos.delete_topic_persistence_info("q", 0, second)
    assert infos.read_topic_persistence_info("q", 0) is None


@pytest.mark.parametrize(
    "ranges",
    [[(0, 1, 2)], [(1, 0, 2)], [(1, 5, 4)], [(1, 1, 5), (1, 6, 7)], [(1, 1, 5), (2, 5, 7)], [(1, 1, ID_MAX + 1)],
     [(2, 1, 5), (1, 6, 7)], [(10**10, 1, 2)]],
)  # fmt: skip
def test_sealed_ranges_that_cannot_be_are_not_written(metastore: MetaStore, ranges: list[tuple[int, int, int]]) -> None:
    infos = TopicPersistenceManager(metastore)
    wrong = PersistenceInfo(tuple(SealedRange(*one) for one in ranges))
    assert refused(infos.write_topic_persistence_info, "q", 0, wrong, NEW) is InvalidRequest


# -- what should not be there ---------------------------------------------------------------------------------------

BAD_FIELDS = [b"", b"\xff", b"[]", b"{}", b'{"epoch":"x"}', b'{"host":"h","session":1,"epoch":0}']


@pytest.mark.parametrize("content", [*BAD_FIELDS, None])
def test_a_foreign_or_damaged_record_is_told_by_table_and_key(metastore: MetaStore, content: bytes | None) -> None:
    metastore.create_table("owners").put("q\x0100001", Value({"owner": content}), NEW)
    owners = TopicOwnershipManager(metastore)
    owners.write_owner_info("q", 2, OWNER, NEW)
    with pytest.raises(CorruptRecord, match=r"'q\\x0100001' of table owners"):
        owners.read_owner_info("q", 1)
    found = owners.read_owner_infos([("q", 1), ("q", 2)])
    assert [type(one) for one in found] == [CorruptRecord, Versioned], "the others are read all the same"
    kinds = {number: type(one) for page in owners.owner_info_pages() for _, number, one in page}
    assert kinds == {1: CorruptRecord, 2: Versioned}
    owners.write_owner_info("q", 1, OWNER, ANY)
    assert owners.read_owner_info("q", 1) == Versioned(OWNER, Version(1)), "it can be written over"


# -- layout: TestMetadataManagerFactory, TestFactoryLayout ----------------------------------------------------------


class OtherStore(MemoryMetaStore):
    """A MetaStore of another kind."""

    name = "other"


@pytest.fixture(params=["fake", pytest.param("zookeeper", marks=pytest.mark.integration)])
def sessions(request: pytest.FixtureRequest) -> list[ZNodes]:
    """Some sessions on the same tree."""
    if request.param == "fake":
        tree = Tree()
        return [FakeZNodes(tree) for _ in range(3)]
    zk: ZooKeeperClient = request.getfixturevalue("zk")
    return [zk] * 3


def start_all(sessions: list[ZNodes], stores: list[MetaStore]) -> list[MetaLayout | type[HootError]]:
    """Start hosts at once, one per store."""
    ready = threading.Barrier(len(stores))

    def start(number: int) -> MetaLayout | type[HootError]:
        ready.wait(20)
        try:
            return ensure_layout(sessions[number % len(sessions)], stores[number])
        except HootError as error:
            return type(error)

    with ThreadPoolExecutor(len(stores)) as pool:
        return list(pool.map(start, range(len(stores))))


def test_fifty_first_starts_of_one_kind_agree(sessions: list[ZNodes]) -> None:
    assert read_layout(sessions[0]) is None
    assert start_all(sessions, [MemoryMetaStore() for _ in range(50)]) == [MetaLayout("memory", 1, 1)] * 50
    assert ensure_layout(sessions[1], MemoryMetaStore()) == read_layout(sessions[0])


def test_of_two_kinds_that_start_at_once_exactly_one_wins(sessions: list[ZNodes]) -> None:
    stores: list[MetaStore] = [MemoryMetaStore() if at % 2 else OtherStore() for at in range(50)]
    outcomes = start_all(sessions, stores)
    won = [outcome for outcome in outcomes if isinstance(outcome, MetaLayout)]
    assert len(won) == 25
    assert len(set(won)) == 1
    assert outcomes.count(LayoutMismatch) == 25


def test_a_kind_that_comes_second_by_a_hair_does_not_start() -> None:
    zk = FakeZNodes()
    for path in ("/hoot", "/hoot/metastore"):
        zk.create(path)
    first = FakeZNodes(zk.tree)

    def just_before() -> None:
        if zk.tree.nodes.get(layout.PATH) is None:
            ensure_layout(first, OtherStore())

    zk.before = lambda: setattr(zk, "before", lambda: setattr(zk, "before", just_before))
    assert refused(ensure_layout, zk, MemoryMetaStore()) is LayoutMismatch
    assert read_layout(zk) == MetaLayout("other", 1, 1)


@pytest.mark.parametrize("value", [b"", b"null", b"{}", b'{"metastore":"memory","metastore_version":2}', b"\xff"])
def test_another_or_a_damaged_layout_stops_the_start_and_says_what_to_do(value: bytes) -> None:
    zk = FakeZNodes()
    for path in ("/hoot", "/hoot/metastore"):
        zk.create(path)
    zk.create(layout.PATH, value)
    with pytest.raises(LayoutMismatch, match="hoot metastore format"):
        ensure_layout(zk, MemoryMetaStore())
    assert zk.get(layout.PATH) == (value, 0), "nothing was touched"


def test_formatting_wipes_all_tables_and_lets_another_kind_start() -> None:
    zk = FakeZNodes()
    store = ZooKeeperMetaStore(zk, zk)
    ensure_layout(zk, store)
    TopicOwnershipManager(store).write_owner_info("q", 0, OWNER, NEW)
    manager = SubscriptionDataManager(store)
    manager.create_subscription_data(preferences())
    zk.set("/hoot/metastore/tables/subscriptions/order/-", b"damaged")
    format_metastore(zk, store)
    assert read_layout(zk) is None
    assert zk.children("/hoot/metastore/tables") == []
    assert ensure_layout(zk, OtherStore()).metastore == "other"
    zk.delete(layout.PATH)
    ensure_layout(zk, store)
    assert SubscriptionDataManager(store).read_subscriptions("q") == {}
