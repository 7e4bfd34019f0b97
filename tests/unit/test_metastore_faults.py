"""The tables of a MetaStore in ZooKeeper when answers get lost, entries are damaged, or calls are random."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from delivery.errors import BadVersion, CorruptRecord, HootError, MetadataUnavailable, Throttled
from delivery.metastore.errors import NoKey
from delivery.metastore.managers.changes import SaveState
from delivery.metastore.managers.ownership import TopicOwnershipManager
from delivery.metastore.managers.records import OwnerInfo, SubscriptionState
from delivery.metastore.managers.subscriptions import SubscriptionDataManager
from delivery.metastore.ops import InDoubt
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.tables import base, pages, watching
from delivery.metastore.tables.base import (
    MetastoreScannableTable,
    MetastoreTable,
    Put,
    Remove,
)
from delivery.metastore.tables.memory import MemoryMetaStore
from delivery.metastore.tables.ranges import Order
from delivery.metastore.tables.values import NONE, Value
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.tables.zookeeper import ZooKeeperMetaStore
from delivery.metastore.znodes import Aspect
from tests.integration.embedded import eventually
from tests.metastore_pages import ROOT, SMALL, all_keys, names, put_all
from tests.metastore_tables import ANY, NEW
from tests.strategies import times
from tests.znodes import FakeZNodes, cut_off

# -- faults ---------------------------------------------------------------------------------------------------------


def test_what_was_sent_is_in_doubt_and_what_was_not_is_not(zk: FakeZNodes, store: ZooKeeperMetaStore) -> None:
    table = store.create_table("t")
    put_all(table, names(600))

    def cut() -> None:
        zk.lose_answer, zk.failing = InDoubt("the answer is lost"), None

    zk.before = cut
    calls = len(zk.transactions)
    outcomes = table.put_many([Put(key, SMALL, Version(0), whole=True) for key in names(600)])
    assert [type(one) for one in outcomes] == [InDoubt] * 250 + [MetadataUnavailable] * 350
    assert len(zk.transactions) == calls + 1, "nothing more is tried"
    versions = [found.version.number for found in table.get_many(names(600)) if isinstance(found, Versioned)]
    assert versions == [1] * 250 + [0] * 350


def test_without_a_connection_every_call_says_so(zk: FakeZNodes, table: MetastoreScannableTable) -> None:
    put_all(table, ["k"])
    zk.failing = cut_off()
    calls: list[Callable[[], Any]] = [
        lambda: table.get("k"), lambda: table.put("k", SMALL, ANY), lambda: table.put("l", SMALL, NEW),
        lambda: table.remove("k", ANY), lambda: all_keys(table),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(MetadataUnavailable):
            call()


class Flaky(FakeZNodes):
    """Every third reading fails while `is_flaky`."""

    is_flaky = False

    def _read(self, aspect: Aspect, paths: Sequence[str]) -> list[Any]:
        found = super()._read(aspect, paths)
        if self.is_flaky and self.reads % 3 == 0:
            raise cut_off()
        return found


@pytest.mark.parametrize("kind", ["plain", "scannable"])
@pytest.mark.parametrize("batch", [7, 64, 97])
def test_a_cursor_goes_on_where_it_was_when_the_connection_is_back(kind: str, batch: int) -> None:
    zk = Flaky()
    store = ZooKeeperMetaStore(zk, zk)
    table = store.create_table("t") if kind == "plain" else store.create_scannable_table("t")
    put_all(table, names(2000))
    zk.is_flaky = True
    seen: list[str] = []
    failures = 0
    with table.open_cursor() as cursor:
        while True:
            try:
                if not cursor.has_more_entries():
                    break
                seen += [item.key for item in cursor.read_entries(batch)]
            except MetadataUnavailable:
                failures += 1
    assert sorted(seen) == names(2000)
    assert failures or batch > 64, "a batch that has something to give does not fail"


def test_an_owner_whose_answer_got_lost_finds_out_that_it_is_the_owner(
    zk: FakeZNodes, store: ZooKeeperMetaStore
) -> None:
    owners = TopicOwnershipManager(store)
    owners.write_owner_info("q", 0, OwnerInfo("h", 1, 1), NEW)
    zk.lose_answer = InDoubt("the answer is lost")
    assert owners.write_owner_info("q", 0, OwnerInfo("me", 2, 2), Version(0)) == Version(1)
    zk.before = lambda: owners.write_owner_info("q", 0, OwnerInfo("other", 3, 3), Version(1))
    with pytest.raises(BadVersion):
        owners.write_owner_info("q", 0, OwnerInfo("me", 2, 3), Version(1))


def test_a_save_whose_answer_got_lost_is_settled_by_saving_it_again(zk: FakeZNodes, store: ZooKeeperMetaStore) -> None:
    states = SubscriptionDataManager(store)
    record = SubscriptionRecord(
        name="s", queue="q", generation="g", created_ms=5, starts={0: 1}, all_partitions=True, topics=()
    )
    taken = states.take_state(record, 0, 1)
    save = SaveState("q", "s", 0, SubscriptionState(9, 1, "g", 5), taken.version)
    zk.lose_answer = InDoubt("the answer is lost")
    with pytest.raises(InDoubt):
        states.save_state(save)
    assert states.save_state(save) == Version(1)


# -- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"\x02\x80", b"\x01", b"\x01\x90", b"\x01\x81\xa1a\xa1x", b"\x01\x81\xa0\xc4\x00", b"{}"]
)
def test_a_damaged_entry_is_told_by_table_and_key_and_can_be_written_over_or_removed(
    zk: FakeZNodes, table: MetastoreScannableTable, data: bytes
) -> None:
    put_all(table, ["a", "bad", "c"])
    path = next(path for path in zk.tree.nodes if path.endswith("/bad"))
    zk.set(path, data)
    with pytest.raises(CorruptRecord, match="'bad' of table t"):
        table.get("bad")
    assert table.get("bad", NONE).version == Version(1)
    with pytest.raises(CorruptRecord):
        table.put("bad", SMALL, ANY)
    items = table.open_cursor().read_entries(9)
    assert [item.key for item in items] == ["a", "bad", "c"]
    with pytest.raises(CorruptRecord):
        _ = items[1].value
    assert all_keys(table) == ["a", "bad", "c"]
    assert table.put("bad", SMALL, Version(1), whole=True) == Version(2)
    zk.set(path, data)
    table.remove("bad", ANY)
    assert all_keys(table) == ["a", "c"]


def test_a_foreign_znode_among_the_entries_is_passed_over(zk: FakeZNodes, store: ZooKeeperMetaStore) -> None:
    table = store.create_table("t")
    put_all(table, ["k"])
    bucket = (zk.children(f"{ROOT}/keys") or [])[0]
    zk.create(f"{ROOT}/keys/{bucket}/%6B", b"foreign")
    zk.create(f"{ROOT}/keys/{bucket}/%FF", b"foreign")
    with table.open_cursor() as cursor:
        assert [item.key for item in cursor.read_entries(9)] == ["k"]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"ordered":1}', b'{"ordered":true,"buckets":7}'])
def test_a_table_whose_record_is_damaged_is_refused_and_can_be_dropped(zk: FakeZNodes, data: bytes) -> None:
    ZooKeeperMetaStore(zk, zk).create_scannable_table("t")
    zk.set(ROOT, data)
    store = ZooKeeperMetaStore(zk, zk)
    with pytest.raises(CorruptRecord):
        store.create_table("t")
    store.drop_table("t")
    put_all(store.create_table("t"), ["k"])


def test_a_table_that_was_dropped_by_another_process_is_not_written_to(zk: FakeZNodes, table: MetastoreTable) -> None:
    put_all(table, ["k"])
    ZooKeeperMetaStore(zk, zk).drop_table("t")
    with pytest.raises(NoKey):
        table.get("k")
    with pytest.raises(MetadataUnavailable, match="dropped"):
        table.put("l", SMALL, NEW)


# -- watches --------------------------------------------------------------------------------------------------------


def test_a_watch_survives_hints_for_nothing_and_reads_that_fail(
    zk: FakeZNodes, store: ZooKeeperMetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "RETRY_SECONDS", 0.01)
    table = store.create_table("t")
    put_all(table, ["k"])
    told: list[base.WatchEvent] = []
    table.get("k", watch=told.append)
    path = next(iter(zk.tree.hints))
    for hint in zk.tree.hints[path] * 3:
        hint()
    zk.failing = cut_off()
    reads = zk.reads
    zk.tree.hints[path][0]()
    eventually(lambda: zk.reads > reads + 1, "it looks again by itself")
    zk.failing = None
    assert told == []
    table.put("k", SMALL, ANY)
    eventually(lambda: told == [base.WatchEvent.CHANGED], "the watcher is told")
    eventually(lambda: zk.tree.hints[path] == [], "the standing watch is taken off")
    store.close()


def test_watches_are_limited(store: ZooKeeperMetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WATCHES_MAX", 2)
    table = store.create_table("t")
    put_all(table, ["k"])
    for _ in range(2):
        table.get("k", watch=lambda event: None)
    with pytest.raises(Throttled):
        table.get("k", watch=lambda event: None)
    store.close()


def test_of_many_that_cannot_all_be_watched_none_is(
    zk: FakeZNodes, store: ZooKeeperMetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "WATCHES_MAX", 2)
    table = store.create_table("t")
    put_all(table, ["k", "l", "m"])
    with pytest.raises(Throttled):
        table.get_many(["k", "l", "m"], watch=lambda key, event: None)
    assert not any(zk.tree.hints.values())
    table.get_many(["k", "l"], watch=lambda key, event: None)
    store.close()


def test_watches_that_are_hinted_at_together_are_looked_at_together(zk: FakeZNodes, store: ZooKeeperMetaStore) -> None:
    """As when the connection is back, or when a host that has just started watches thousands."""
    table = store.create_table("t")
    keys = [f"k{number}" for number in range(200)]
    put_all(table, ["busy", *keys])
    told: list[str] = []
    called, go_on = threading.Event(), threading.Event()

    def keep_busy(_: base.WatchEvent) -> None:
        called.set()
        assert go_on.wait(10)

    table.get_many(keys, watch=lambda key, _: told.append(key))
    table.get("busy", watch=keep_busy)
    table.put("busy", SMALL, ANY)
    assert called.wait(10)
    table.put("k7", SMALL, ANY)
    for hint in [hint for hints in zk.tree.hints.values() for hint in hints]:
        hint()
    reads = zk.reads
    go_on.set()
    eventually(lambda: told == ["k7"], "the one that was changed")
    assert zk.reads == reads + 1
    store.close()


# -- the same as the reference --------------------------------------------------------------------------------------

few_keys = st.sampled_from(["a", "b", "a\x01b", "ab", "é", "z" * 400, "y" * 400, "x" * 400, "w" * 400])
values = st.dictionaries(st.sampled_from("xyz"), st.one_of(st.none(), st.binary(max_size=4)), max_size=3).map(Value)
versions = st.sampled_from([NEW, NEW, ANY, Version(0), Version(1), Version(2)])
changes = st.one_of(st.builds(Put, few_keys, values, versions, st.booleans()), st.builds(Remove, few_keys, versions))
ends = st.one_of(st.none(), few_keys, st.sampled_from(["", "aa", "zz", "\U0010ffff"]))


def told(outcome: Any) -> Any:
    return type(outcome) if isinstance(outcome, HootError) else outcome


def scan(table: MetastoreScannableTable, args: tuple[Any, ...], order: Order, fields: Any, batch: int) -> Any:
    try:
        cursor = table.open_cursor(*args, order=order, fields=fields)
    except HootError as error:
        return type(error)
    found = []
    while cursor.has_more_entries():
        found += [(item.key, item.value, item.version) for item in cursor.read_entries(batch)]
    return found


@times(2)
@given(
    st.lists(st.lists(changes, max_size=8), max_size=8),
    st.lists(
        st.tuples(
            st.tuples(ends, st.booleans(), ends, st.booleans()), st.sampled_from(Order),
            st.sampled_from([None, (), ("x",), ("y", "z")]), st.integers(1, 5),
        ),
        min_size=1, max_size=4,
    ),
)  # fmt: skip
def test_any_sequence_of_calls_has_the_results_of_the_reference(
    steps: list[list[Put | Remove]], scans: list[Any]
) -> None:
    zk = FakeZNodes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "PAGE_BYTES", 900)  # three long keys fill a page
        patch.setattr(pages, "_FILL", 600)
        first = ZooKeeperMetaStore(zk, zk).create_scannable_table("t")
        second = ZooKeeperMetaStore(zk, zk).create_scannable_table("t")
        reference = MemoryMetaStore().create_scannable_table("t")
        for number, step in enumerate(steps):
            table = second if number % 2 else first
            puts, removes = (
                [one for one in step if isinstance(one, Put)],
                [one for one in step if isinstance(one, Remove)],
            )
            assert list(map(told, table.put_many(puts))) == list(map(told, reference.put_many(puts)))
            assert list(map(told, table.remove_many(removes))) == list(map(told, reference.remove_many(removes)))
            keys = [one.key for one in step]
            assert table.get_many(keys, ("x",)) == reference.get_many(keys, ("x",))
        for args, order, fields, batch in scans:
            for table in (first, second):
                assert scan(table, args, order, fields, batch) == scan(reference, args, order, fields, 1000)
