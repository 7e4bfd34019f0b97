"""Subscriptions and their listeners in a real ZooKeeper: who may attach, take over, detach and delete."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from delivery.errors import (
    BadVersion,
    CorruptRecord,
    HootError,
    InvalidRequest,
    MetadataUnavailable,
    SubscriptionExists,
    UnknownQueue,
    UnknownSubscription,
)
from delivery.metastore import records
from delivery.metastore.catalog import Catalog
from delivery.metastore.managers.changes import SaveState, TakeState
from delivery.metastore.managers.records import ParkedKey
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.tables.versions import Version, Versioned
from delivery.metastore.zookeeper import ZooKeeperClient
from delivery.model import QueueSettings
from tests.integration.metastore import (
    CREATED_MS,
    Interposed,
    at_once,
    catalog_over,
    corrupt,
    entry,
    listener,
    rewrite,
    subscription,
)

pytestmark = pytest.mark.integration


# -- records


def test_a_subscription_is_written_listed_and_read_back(queue: Catalog) -> None:
    assert queue.subscription("q", "s") == subscription()
    assert queue.subscription("q", "t") is None
    queue.create_subscription(subscription(name="r"))
    assert queue.subscriptions("q") == ["r", "s"]
    changed = msgspec.structs.replace(subscription(), topics=())
    rewrite(queue, changed)
    assert queue.subscription("q", "s") == changed


def test_two_who_change_different_preferences_undo_nothing_of_each_other(queue: Catalog) -> None:
    def widen(found: SubscriptionRecord) -> SubscriptionRecord:
        if found.filter is None:  # between this one's read and its write
            other = msgspec.structs.replace(found, filter='{"sql":"TRUE"}')
            assert queue.change_subscription("q", "s", lambda _: other) == other
        return msgspec.structs.replace(found, topics=("*",))

    changed = msgspec.structs.replace(subscription(), topics=("*",), filter='{"sql":"TRUE"}')
    assert queue.change_subscription("q", "s", widen) == changed
    assert queue.subscription("q", "s") == changed
    with pytest.raises(UnknownSubscription, match="did you mean s"):
        queue.change_subscription("q", "ss", widen)


def test_who_releases_what_is_parked_undoes_nothing_of_what_others_change_meanwhile(
    queue: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    [taken] = queue.take_states([TakeState(subscription(), 0, 1)])
    assert isinstance(taken, Versioned)
    parked = msgspec.structs.replace(taken.value, parked=(ParkedKey(b"k", (5,), due_ms=10**15),))
    queue.save_states([SaveState("q", "s", 0, parked, taken.version)])
    manager = queue.managers.subscriptions
    save = manager.save_states

    def save_late(saves: Sequence[SaveState]) -> list[Version | HootError]:
        queue.change_subscription("q", "s", lambda found: msgspec.structs.replace(found, moves=7))
        return save(saves)

    monkeypatch.setattr(manager, "save_states", save_late)
    assert queue.release_parked("q", "s", [b"k"], 99) == 1
    found = queue.subscription("q", "s")
    assert found is not None
    assert (found.moves, found.released_ms) == (7, 99)
    assert queue.states("q", "s")[0].parked[0].due_ms == 0


@pytest.mark.parametrize("wrong", [{"filter": '{"sql":"hops >"}'}, {"filter": '{"wasm":"x"}'}, {"topics": ("a b",)}])
def test_what_cannot_be_a_filter_is_neither_written_nor_read(
    queue: Catalog, zk: ZooKeeperClient, wrong: dict[str, Any]
) -> None:
    record = msgspec.structs.replace(subscription(), **wrong)
    with pytest.raises(InvalidRequest, match="cannot be kept"):
        queue.change_subscription("q", "s", lambda _: record)
    assert queue.subscription("q", "s") == subscription()
    corrupt(zk, "subscriptions", "q\x01s", entry("preferences", records.encode(record)))
    with pytest.raises(CorruptRecord, match="cannot be"):
        queue.subscription("q", "s")


def test_a_subscription_is_neither_created_twice_nor_changed_before_it_is_there(queue: Catalog) -> None:
    with pytest.raises(SubscriptionExists):
        queue.create_subscription(msgspec.structs.replace(subscription(), topics=()))
    with pytest.raises(UnknownSubscription, match="did you mean s"):
        rewrite(queue, subscription(name="ss"))
    with pytest.raises(UnknownQueue):
        queue.create_subscription(subscription(queue="r"))
    assert (queue.subscriptions("q"), queue.subscription("q", "s")) == (["s"], subscription())


def test_nothing_stays_of_a_subscription_that_is_created_while_its_queue_is_deleted(
    queue: Catalog, zk: ZooKeeperClient
) -> None:
    between = Interposed(zk)
    between.before = lambda: queue.delete_queue("q")
    with pytest.raises(UnknownQueue):
        catalog_over(between).create_subscription(subscription(name="t"))
    queue.create_queue("q", QueueSettings())
    assert queue.subscriptions("q") == []


def test_a_subscription_is_made_for_no_other_queue_than_the_one_it_was_meant_for(
    queue: Catalog, zk: ZooKeeperClient
) -> None:
    between = Interposed(zk)

    def change() -> None:
        queue.delete_queue("q")
        queue.create_queue("q", QueueSettings())

    between.before = change
    through = catalog_over(between)
    for _ in ("in the course of it", "before"):
        with pytest.raises(BadVersion, match="another one of its name"):
            through.create_subscription(subscription(name="t"))
    assert queue.subscriptions("q") == []


@pytest.mark.parametrize(
    "value",
    [
        b"", b"{}", b"\xff", entry("preferences", b"{}"), entry("other", b"{}"),
        entry("preferences", records.encode(subscription(name="t"))),
        entry("preferences", records.encode(subscription(queue="r"))),
        entry("preferences", records.encode(msgspec.structs.replace(subscription(), starts={-1: 0}))),
        entry("preferences", records.encode(msgspec.structs.replace(subscription(), starts={0: -5}))),
        entry("preferences", records.encode(msgspec.structs.replace(subscription(), starts={32767: 0}))),
    ],
)  # fmt: skip
def test_a_foreign_subscription_record_is_named_and_can_still_be_deleted(
    queue: Catalog, zk: ZooKeeperClient, value: bytes
) -> None:
    corrupt(zk, "subscriptions", "q\x01s", value)
    for call in (partial(queue.subscription, "q", "s"), partial(queue.attach, "q", "s", listener())):
        with pytest.raises(CorruptRecord, match=r"'q.x01s' of table subscriptions"):
            call()
    queue.delete_subscription("q", "s")
    assert queue.subscriptions("q") == []


# -- deleting


def begun(catalog: Catalog, created_ms: int = CREATED_MS, epoch: int = 1) -> None:
    [taken] = catalog.take_states([TakeState(subscription(created_ms=created_ms), 0, epoch)])
    assert isinstance(taken, Versioned)


def test_a_deleted_subscription_takes_its_states_and_its_listener_with_it(queue: Catalog) -> None:
    begun(queue)
    queue.attach("q", "s", listener())
    queue.delete_subscription("q", "s")
    assert (queue.subscriptions("q"), queue.listeners("q"), queue.subscription("q", "s")) == ([], [], None)
    for call in (queue.delete_subscription, queue.states):
        with pytest.raises(UnknownSubscription):
            call("q", "s")
    queue.create_subscription(subscription())
    assert queue.states("q", "s") == {}


@pytest.mark.parametrize("when", range(3))
def test_a_deletion_meets_a_subscriber_who_attaches_and_an_owner_who_begins_meanwhile(
    queue: Catalog, other: Catalog, zk: ZooKeeperClient, when: int
) -> None:
    """Before any transaction of the deletion: nobody is left attached to what is not there."""
    begun(queue)
    queue.attach("q", "s", listener("first"))
    between = Interposed(zk)
    outcomes: list[object] = []

    def meanwhile() -> None:
        outcomes.extend(at_once([lambda: other.attach("q", "s", listener("late"), replace=listener("first"))]))
        begun(queue, epoch=2)

    step = meanwhile
    for _ in range(when):
        step = partial(setattr, between, "before", step)
    between.before = step
    catalog_over(between).delete_subscription("q", "s")
    assert len(outcomes) == 1
    assert (queue.subscriptions("q"), queue.listeners("q")) == ([], [])
    assert outcomes == [None] or isinstance(outcomes[0], UnknownSubscription)


def test_a_deletion_that_breaks_off_anywhere_can_be_ended_by_another(queue: Catalog, zk: ZooKeeperClient) -> None:
    breaks = 0
    while True:
        begun(queue)
        queue.attach("q", "s", listener())
        between = Interposed(zk)
        through = catalog_over(between)
        between.down_after = breaks
        try:
            through.delete_subscription("q", "s")
        except MetadataUnavailable:
            breaks += 1
            if queue.subscriptions("q"):
                queue.delete_subscription("q", "s")
            queue.create_subscription(subscription(created_ms=CREATED_MS + breaks))
            assert queue.states("q", "s") == {}, "what is left of states counts for no later subscription"
            queue.delete_subscription("q", "s")
            queue.create_subscription(subscription())
        else:
            break
    assert breaks >= 3, "the listener, the preferences, the states"
    assert queue.subscriptions("q") == []


def test_the_holder_is_given_as_a_record_to_take_over_from(queue: Catalog, other: Catalog) -> None:
    queue.attach("q", "s", listener("a"))
    seen = other.listener("q", "s")
    assert isinstance(seen, ListenerRecord)
    assert other.states("q", "s") == {}
    other.attach("q", "s", listener("b"), replace=seen)
