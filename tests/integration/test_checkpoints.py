"""Checkpoints in a real ZooKeeper: forward only, for owners only, many at a time, each by itself."""

from __future__ import annotations

import random
from functools import partial

import pytest

from delivery.errors import CorruptRecord, Fenced, MetadataUnavailable, UnknownSubscription
from delivery.ids import ID_MAX
from delivery.metastore import checkpoints, records
from delivery.metastore.catalog import Catalog
from delivery.metastore.partitions import NEVER_OWNED
from delivery.metastore.records import Checkpoint
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from tests.integration.metastore import CREATED_MS, Interposed, at_once, subscription, update

pytestmark = pytest.mark.integration


@pytest.fixture
def between(catalog: Catalog, zk: ZooKeeperClient) -> Interposed:
    """A queue `q` with subscriptions `s` and `t`, partitions 0 to 4 claimed once; and a hand in between."""
    catalog.create_queue("q", QueueSettings(partitions=5))
    for name in ("s", "t"):
        catalog.put_subscription(subscription(name=name), create=True)
    for partition in range(5):
        catalog.claim("q", partition, "h", 1, NEVER_OWNED)
    return Interposed(zk)


@pytest.fixture
def saver(between: Interposed) -> Catalog:
    return Catalog(between)


def ids(catalog: Catalog, name: str = "s") -> dict[int, int]:
    return {partition: found.id for partition, found in catalog.checkpoints("q", name).items()}


LATER = CREATED_MS + 1


def make_anew(catalog: Catalog) -> None:
    """Delete subscription `s` and make another of that name."""
    catalog.delete_subscription("q", "s")
    catalog.put_subscription(subscription(created_ms=LATER), create=True)


def test_a_checkpoint_is_created_then_moved_forward(saver: Catalog, between: Interposed) -> None:
    assert saver.checkpoints("q", "s") == {}
    assert saver.save_checkpoints([update(0, 10), update(3, 20, name="t", epoch=7)]) == [None, None]
    assert saver.checkpoints("q", "s") == {0: Checkpoint(10, 1, CREATED_MS)}
    assert saver.checkpoints("q", "t") == {3: Checkpoint(20, 7, CREATED_MS)}
    assert saver.checkpoint("q", "t", 3) == Checkpoint(20, 7, CREATED_MS)
    assert saver.checkpoint("q", "t", 4) is None
    between.reads = 0
    for number in range(11, 20):
        assert saver.save_checkpoints([update(0, number)]) == [None]
    assert between.reads == 0, "what is known is not read again"
    assert ids(saver) == {0: 19}
    assert saver.save_checkpoints([]) == []


def test_many_checkpoints_take_one_transaction_with_one_check_per_partition(
    saver: Catalog, between: Interposed
) -> None:
    names = [f"s{n:02}" for n in range(40)]
    for name in names:
        saver.put_subscription(subscription(name=name), create=True)
    for number in (10, 20):
        between.transactions.clear()
        updates = [update(partition, number, name=name) for name in names for partition in range(5)]
        assert saver.save_checkpoints(updates) == [None] * 200
        assert [len(ops) for ops in between.transactions] == [205]
    assert all(ids(saver, name) == dict.fromkeys(range(5), 20) for name in names)


def test_more_than_one_transaction_holds_are_spread(
    saver: Catalog, between: Interposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SAVED_AT_ONCE", 3)
    assert saver.save_checkpoints([update(partition, 10) for partition in range(5)]) == [None] * 5
    assert len(between.transactions) == 2
    assert ids(saver) == dict.fromkeys(range(5), 10)


def test_a_checkpoint_never_goes_backwards(saver: Catalog, zk: ZooKeeperClient) -> None:
    assert saver.save_checkpoints([update(0, 10)]) == [None]
    for knowing in (saver, Catalog(zk)):
        assert knowing.save_checkpoints([update(0, 9), update(0, 10), update(1, 0)]) == [None] * 3
        assert ids(knowing) == {0: 10, 1: 0}


def test_of_several_for_one_checkpoint_the_highest_remains(saver: Catalog) -> None:
    assert saver.save_checkpoints([update(0, n) for n in (5, 30, 20, 40, 10)]) == [None] * 5
    assert ids(saver) == {0: 40}


def test_who_lost_the_partition_saves_nothing_there_and_everything_elsewhere(
    saver: Catalog, between: Interposed
) -> None:
    saver.claim("q", 1, "h2", 2, 0)
    updates = [update(p, 10, name=name) for name in ("s", "t") for p in range(5)]
    errors = saver.save_checkpoints(updates)
    assert [type(error) for error in errors] == [type(None), Fenced, type(None), type(None), type(None)] * 2
    assert len(between.transactions) == 3, "a claim, the refused one, and the rest"
    assert ids(saver) == ids(saver, "t") == {0: 10, 2: 10, 3: 10, 4: 10}
    assert saver.save_checkpoints([update(1, 11, version=1, epoch=2)]) == [None]
    assert saver.checkpoints("q", "s")[1] == Checkpoint(11, 2, CREATED_MS)


def test_who_has_known_the_checkpoint_is_fenced_all_the_same(saver: Catalog, catalog: Catalog) -> None:
    assert saver.save_checkpoints([update(0, 10)]) == [None]
    catalog.claim("q", 0, "h2", 2, 0)
    assert catalog.save_checkpoints([update(0, 15, version=1)]) == [None]
    [error] = saver.save_checkpoints([update(0, 20)])
    assert isinstance(error, Fenced)
    assert ids(saver) == {0: 15}


def test_a_deleted_queue_fences_its_partitions(saver: Catalog) -> None:
    saver.create_queue("r", QueueSettings())
    saver.claim("r", 0, "h", 1, NEVER_OWNED)
    saver.put_subscription(subscription(queue="r"), create=True)
    saver.delete_queue("r")
    first, second = saver.save_checkpoints([update(0, 1, queue="r"), update(0, 1)])
    assert isinstance(first, Fenced)
    assert second is None


@pytest.mark.parametrize("known", [False, True])
def test_a_deleted_subscription_does_not_hold_up_the_others(saver: Catalog, catalog: Catalog, known: bool) -> None:
    if known:
        assert saver.save_checkpoints([update(0, 5), update(0, 5, name="t")]) == [None, None]
    catalog.delete_subscription("q", "s")
    errors = saver.save_checkpoints([update(0, 10), update(0, 10, name="t"), update(1, 10)])
    assert [type(error) for error in errors] == [UnknownSubscription, type(None), UnknownSubscription]
    assert ids(saver, "t") == {0: 10}
    with pytest.raises(UnknownSubscription):
        saver.checkpoints("q", "s")


def test_a_subscription_made_anew_begins_where_it_likes(saver: Catalog, catalog: Catalog) -> None:
    """What was remembered of the old one of that name is not taken for the new one's."""
    assert saver.save_checkpoints([update(0, 1000), update(1, 1000)]) == [None, None]
    make_anew(catalog)
    assert saver.save_checkpoints([update(0, 7, created_ms=LATER), update(1, 2000, created_ms=LATER)]) == [None, None]
    assert ids(saver) == {0: 7, 1: 2000}


@pytest.mark.parametrize("known", [False, True], ids=["first", "not-first"])
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_late_position_of_a_deleted_subscription_is_none_of_the_one_made_anew(
    saver: Catalog, catalog: Catalog, between: Interposed, known: bool, when: str
) -> None:
    """Also when the deletion and the new creation come between the decision to save it and the transaction."""
    if known:
        assert saver.save_checkpoints([update(0, 1000)]) == [None]
    if when == "before":
        make_anew(catalog)
    else:
        between.before = lambda: make_anew(catalog)
    saver.save_checkpoints([update(0, 2000)])
    assert between.before is None, "it came to a transaction"
    assert ids(saver) == ids(catalog) == {}
    for one in (saver, catalog):
        assert one.save_checkpoints([update(0, 7, created_ms=LATER)]) == [None]
        assert ids(one) == {0: 7}


@pytest.mark.parametrize("times", [1, 2])
def test_a_late_position_leaves_the_checkpoint_of_the_subscription_made_anew_alone(
    saver: Catalog, catalog: Catalog, times: int
) -> None:
    """Even when the new checkpoint's znode has the version that the old one had."""
    for n in range(times):
        assert saver.save_checkpoints([update(0, 1000 + n)]) == [None]
    make_anew(catalog)
    for n in range(times):
        assert saver.save_checkpoints([update(0, 5 + n, created_ms=LATER)]) == [None]
    for one in (saver, catalog):
        [error, other] = one.save_checkpoints([update(0, 2000), update(1, 9, created_ms=LATER)])
        assert isinstance(error, UnknownSubscription)
        assert other is None
        assert ids(one) == {0: 4 + times, 1: 9}
    assert saver.save_checkpoints([update(0, 50, created_ms=LATER)]) == [None]
    assert ids(saver) == {0: 50, 1: 9}


def test_what_was_saved_too_late_can_be_replaced_only_by_what_the_record_says(
    saver: Catalog, catalog: Catalog, zk: ZooKeeperClient
) -> None:
    saver.save_checkpoints([update(0, 1000)])
    zk.set(records.subscription_path("q", "s"), b"{}")
    [error] = saver.save_checkpoints([update(0, 7, created_ms=LATER)])
    assert isinstance(error, CorruptRecord)
    with pytest.raises(CorruptRecord):
        saver.checkpoints("q", "s")
    catalog.delete_subscription("q", "s")
    [error] = saver.save_checkpoints([update(0, 7, created_ms=LATER)])
    assert isinstance(error, UnknownSubscription)


def test_a_checkpoint_that_another_moved_is_looked_at_again(saver: Catalog, catalog: Catalog) -> None:
    assert saver.save_checkpoints([update(p, 10) for p in range(5)]) == [None] * 5
    assert catalog.save_checkpoints([update(0, 20), update(1, 20)]) == [None, None]
    assert saver.save_checkpoints([update(0, 15), update(1, 25), update(2, 15)]) == [None] * 3
    assert ids(saver) == {0: 20, 1: 25, 2: 15, 3: 10, 4: 10}


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"7", b'{"id":-1,"epoch":1,"created_ms":1}', b'{"id":5,"epoch":-1,"created_ms":1}', b"\xff"],
)
def test_a_foreign_checkpoint_is_named_and_does_not_hold_up_the_others(
    saver: Catalog, zk: ZooKeeperClient, value: bytes
) -> None:
    path = records.checkpoint_path("q", "s", 1)
    zk.create(path, value)
    errors = saver.save_checkpoints([update(0, 10), update(1, 10), update(2, 10)])
    assert [type(error) for error in errors] == [type(None), CorruptRecord, type(None)]
    assert path in str(errors[1])
    assert zk.get(path) == (value, 0)
    with pytest.raises(CorruptRecord, match=path):
        saver.checkpoints("q", "s")


def test_a_foreign_znode_among_the_checkpoints_is_named(saver: Catalog, zk: ZooKeeperClient) -> None:
    zk.create(f"{records.subscription_path('q', 's')}/extra")
    with pytest.raises(CorruptRecord, match="s/extra"):
        saver.checkpoints("q", "s")


def test_while_zookeeper_is_away_every_one_is_unavailable_and_can_be_saved_later(
    saver: Catalog, between: Interposed
) -> None:
    assert saver.save_checkpoints([update(0, 5)]) == [None]
    between.down_after = len(between.transactions)
    errors = saver.save_checkpoints([update(0, 10), update(1, 10)])
    assert [type(error) for error in errors] == [between.down_error, between.down_error]
    assert all(isinstance(error, MetadataUnavailable) for error in errors)
    assert ids(saver) == {0: 5}
    between.down_after = None
    assert saver.save_checkpoints([update(0, 10), update(1, 10)]) == [None, None]
    assert ids(saver) == {0: 10, 1: 10}


def test_a_save_whose_answer_was_lost_is_found_done_the_next_time(saver: Catalog, between: Interposed) -> None:
    assert saver.save_checkpoints([update(0, 5)]) == [None]
    between.lose_answer = True
    [error] = saver.save_checkpoints([update(0, 10)])
    assert isinstance(error, MetadataUnavailable)
    assert saver.save_checkpoints([update(0, 11)]) == [None]
    assert ids(saver) == {0: 11}


def test_above_the_limit_what_is_remembered_is_forgotten_and_saving_goes_on(
    saver: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "REMEMBERED_MAX", 2)
    for number in (10, 20, 15):
        assert saver.save_checkpoints([update(p, number) for p in range(5)]) == [None] * 5
        assert len(saver._known) <= 5
    assert ids(saver) == dict.fromkeys(range(5), 20)


def test_the_largest_id_is_saved(saver: Catalog) -> None:
    assert saver.save_checkpoints([update(0, ID_MAX)]) == [None]
    assert ids(saver) == {0: ID_MAX}


def test_whatever_several_owners_do_no_checkpoint_is_ever_seen_lower(
    saver: Catalog, catalog: Catalog, zookeeper_hosts: str
) -> None:
    """Two hosts save random positions under their own epochs while the partitions change hands; a third one watches."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    versions = dict.fromkeys(range(5), 0)
    highest: dict[int, int] = {}
    with ZooKeeperClient(zookeeper_hosts) as third:
        hosts = [saver, Catalog(third)]
        beliefs = [dict(versions), dict(versions)]
        for _ in range(60):
            if chance.random() < 0.3:
                partition, host = chance.randrange(5), chance.randrange(2)
                catalog.claim("q", partition, f"h{host}", host, versions[partition])
                versions[partition] += 1
                beliefs[host][partition] = versions[partition]
            calls = []
            for one, belief in zip(hosts, beliefs, strict=True):
                updates = [update(p, chance.randrange(1000), version=belief[p]) for p in range(5)]
                calls.append(partial(one.save_checkpoints, updates))
            at_once(calls)
            for partition, found in ids(catalog).items():
                assert found >= highest.get(partition, 0), f"seed {seed}"
                highest[partition] = found
    assert len(highest) == 5
