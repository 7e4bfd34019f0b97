"""Subscriptions and their states over any MetaStore (seed 000)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from delivery.errors import (
    BadVersion,
    CorruptRecord,
    Fenced,
    HootError,
    InvalidRequest,
    SubscriptionExists,
    UnknownPartition,
    UnknownSubscription,
)
from delivery.ids import ID_MAX
from delivery.metastore.managers.changes import SaveState, Taken, TakeState
from delivery.metastore.managers.ownership import TopicOwnershipManager
from delivery.metastore.managers.records import OwnerInfo
from delivery.metastore.managers.subscriptions import DamagedPreferences, SubscriptionDataManager
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from tests.integration.embedded import NEVER
from tests.metastore_managers import OWNER, preferences, save, state
from tests.metastore_tables import ANY, NEW, StartStore, refused


@pytest.fixture
def subscriptions(metastore: MetaStore) -> SubscriptionDataManager:
    return SubscriptionDataManager(metastore)


# -- subscriptions: testSubscriptionData ----------------------------------------------------------------------------


def test_a_subscription_is_created_updated_and_deleted_by_version(subscriptions: SubscriptionDataManager) -> None:
    first = preferences()
    assert subscriptions.read_subscription_data("q", "s") is None
    assert subscriptions.read_subscriptions("q") == {}
    assert refused(subscriptions.update_subscription_data, first, ANY) is UnknownSubscription
    assert refused(subscriptions.replace_subscription_data, first, Version(0)) is UnknownSubscription
    assert refused(subscriptions.delete_subscription_data, "q", "s", ANY) is UnknownSubscription
    created = subscriptions.create_subscription_data(first)
    assert refused(subscriptions.create_subscription_data, preferences(topic="b")) is SubscriptionExists
    later = preferences(topic="b")
    for wrong in (Version(9), NEW):
        assert refused(subscriptions.update_subscription_data, later, wrong) is BadVersion
        assert refused(subscriptions.replace_subscription_data, preferences(created_ms=6), wrong) is BadVersion
        assert refused(subscriptions.delete_subscription_data, "q", "s", wrong) is BadVersion
    assert subscriptions.read_preferences("q", "s") == Versioned(first, created)
    updated = subscriptions.update_subscription_data(later, created)
    assert subscriptions.read_preferences("q", "s") == Versioned(later, updated)
    assert refused(subscriptions.update_subscription_data, first, created) is BadVersion
    subscriptions.delete_subscription_data("q", "s", updated)
    assert subscriptions.read_subscription_data("q", "s") is None
    assert subscriptions.create_subscription_data(first) == created


def test_preferences_and_states_change_without_each_other(subscriptions: SubscriptionDataManager) -> None:
    assert subscriptions.is_partial_update_supported()
    created = subscriptions.create_subscription_data(preferences())
    taken = subscriptions.take_state(preferences(), 0, 1)
    saved = subscriptions.save_state(save(150, taken.version))
    updated = subscriptions.update_subscription_data(preferences(topic="b"), created)
    saved = subscriptions.save_state(save(160, saved))
    found = subscriptions.read_subscription_data("q", "s")
    assert found is not None
    assert (found.value.preferences, found.version) == (preferences(topic="b"), updated)
    assert found.value.states == {0: Versioned(state(160), saved)}
    assert refused(subscriptions.update_subscription_data, preferences(created_ms=6), updated) is InvalidRequest


def test_a_replaced_subscription_begins_at_its_new_start_and_its_owner_hears_of_it(
    subscriptions: SubscriptionDataManager,
) -> None:
    version = subscriptions.create_subscription_data(preferences())
    held = subscriptions.save_state(save(150, subscriptions.take_state(preferences(), 0, 1).version))
    assert refused(subscriptions.replace_subscription_data, preferences(), version) is InvalidRequest
    other = preferences(created_ms=6)
    subscriptions.replace_subscription_data(other, version)
    found = subscriptions.read_subscription_data("q", "s")
    assert found is not None
    assert (found.value.preferences, found.value.states) == (other, {})
    assert refused(subscriptions.save_state, save(160, held)) is UnknownSubscription
    assert subscriptions.take_state(other, 0, 1).value == state(100, created_ms=6)
    assert refused(subscriptions.save_state, save(160, held)) is UnknownSubscription


def test_the_states_of_a_deleted_subscription_count_for_no_later_one(subscriptions: SubscriptionDataManager) -> None:
    version = subscriptions.create_subscription_data(preferences())
    taken = subscriptions.take_state(preferences(), 0, 5)
    subscriptions.save_state(save(150, taken.version, epoch=5))
    subscriptions.delete_subscription_data("q", "s", version)
    # A host that has not heard of it yet takes over the state of the deleted one.
    late = subscriptions.take_state(preferences(), 0, 6)
    again = preferences(created_ms=9)
    subscriptions.create_subscription_data(again)
    assert subscriptions.read_states(again) == {}
    assert subscriptions.take_state(again, 0, 6).value == state(100, 6, 9)
    assert refused(subscriptions.save_state, save(999, late.version, epoch=6)) is UnknownSubscription
    # Ending the deletion late leaves the new one's state alone.
    subscriptions.delete_states("q", "s", preferences())
    assert subscriptions.read_states(again)[0].value.position == 100


def test_subscriptions_are_listed_by_page_in_the_order_of_their_names(subscriptions: SubscriptionDataManager) -> None:
    names = sorted(f"s-{at:03}" for at in range(120))
    for name in [*names, "S", "s.x"]:
        subscriptions.create_subscription_data(preferences(name))
    subscriptions.create_subscription_data(preferences("other", "q2"))
    subscriptions.create_subscription_data(preferences("other", "q-1"))
    subscriptions.take_state(preferences("S"), 2, 1)
    seen: list[str] = []
    after = None
    while page := subscriptions.list_subscriptions("q", after, 50):
        assert len(page) <= 50
        seen += [name for name, _ in page]
        after = seen[-1]
    assert seen == sorted([*names, "S", "s.x"])
    assert subscriptions.list_subscription_names("q") == seen
    assert subscriptions.list_subscription_names("q", seen[2], 5) == seen[3:8]
    everything = subscriptions.read_subscriptions("q")
    assert sorted(everything) == seen
    assert everything["S"].value.states == {2: Versioned(state(100), Version(0))}
    assert subscriptions.read_subscriptions("none") == {}
    assert subscriptions.list_subscriptions("none") == []
    assert refused(subscriptions.list_subscriptions, "q", None, 0) is InvalidRequest


# -- states: fencing without transactions ---------------------------------------------------------------------------


def test_a_new_state_begins_at_the_start_and_moves_with_each_save(subscriptions: SubscriptionDataManager) -> None:
    taken = subscriptions.take_state(preferences(), 2, 1)
    assert taken.value == state(100)
    version = subscriptions.save_state(save(110, taken.version, partition=2))
    version = subscriptions.save_state(save(120, version, partition=2))
    assert subscriptions.take_state(preferences(), 2, 2).value == state(120, 2)
    assert refused(subscriptions.take_state, preferences(), 9, 1) is UnknownPartition


def test_an_owner_that_was_taken_over_from_saves_nothing_ever_again(start_metastore: StartStore) -> None:
    old, new = SubscriptionDataManager(start_metastore()), SubscriptionDataManager(start_metastore())
    held = old.save_state(save(150, old.take_state(preferences(), 0, 1).version))
    taken = new.take_state(preferences(), 0, 2)
    assert taken.value.position == 150
    assert refused(old.save_state, save(160, held)) is Fenced
    assert refused(old.take_state, preferences(), 0, 1) is Fenced
    version = new.save_state(save(170, taken.version, epoch=2))
    assert refused(old.save_state, save(180, held)) is Fenced
    assert new.read_states(preferences()) == {0: Versioned(state(170, 2), version)}


def test_a_save_that_came_before_the_take_over_is_what_the_new_owner_finds(start_metastore: StartStore) -> None:
    """Whatever the interleaving: each save either counts for the new owner, or fails."""
    old, new = SubscriptionDataManager(start_metastore()), SubscriptionDataManager(start_metastore())
    held = old.take_state(preferences(), 0, 1).version
    ready = threading.Barrier(2)
    kept = [100]

    def saving() -> type[HootError]:
        nonlocal held
        ready.wait(20)
        for position in range(101, 10_000):
            try:
                held = old.save_state(save(position, held))
            except HootError as error:
                return type(error)
            kept.append(position)
            NEVER.wait(0.002)
        raise AssertionError("it was never fenced")

    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(saving)
        ready.wait(20)
        taken = new.take_state(preferences(), 0, 2)
        assert outcome.result(60) is Fenced
    assert taken.value.position == kept[-1]


def test_a_state_that_an_operator_moves_tells_its_owner(subscriptions: SubscriptionDataManager) -> None:
    taken = subscriptions.take_state(preferences(), 0, 3)
    moved = subscriptions.save_state(save(50, taken.version, epoch=3))
    assert refused(subscriptions.save_state, save(170, taken.version, epoch=3)) is BadVersion
    assert subscriptions.take_state(preferences(), 0, 3) == Versioned(state(50, 3), Version(moved.number + 1))


def test_saving_the_same_again_is_fine_when_the_first_answer_got_lost(subscriptions: SubscriptionDataManager) -> None:
    taken = subscriptions.take_state(preferences(), 0, 1)
    saved = subscriptions.save_state(save(150, taken.version))
    assert subscriptions.save_state(save(150, taken.version)) == saved


def test_many_states_are_taken_and_saved_each_by_itself(subscriptions: SubscriptionDataManager) -> None:
    subscriptions.take_state(preferences("s2"), 1, 9)
    takes = [TakeState(preferences(f"s{at % 5}"), at % 4, 2) for at in range(20)] + [TakeState(preferences(), 7, 2)]
    outcomes = subscriptions.take_states(takes)
    kinds = [type(one) for one in outcomes]
    lost = [at for at, take in enumerate(takes) if (take.preferences.name, take.partition) == ("s2", 1)]
    assert [at for at, kind in enumerate(kinds) if kind is Fenced] == lost
    assert kinds[-1] is UnknownPartition
    saves = [
        SaveState("q", take.preferences.name, take.partition, state(200 + at, 2), outcome.version)
        for at, (take, outcome) in enumerate(zip(takes, outcomes, strict=True))
        if isinstance(outcome, Versioned)
    ]
    saves += [
        save(1, Version(7), epoch=2, name="s0"),
        save(1, Version(0), name="none"),
        save(1, Version(5), name="s2", partition=1),
    ]
    results = subscriptions.save_states(saves)
    assert [type(one) for one in results] == [Version] * 19 + [BadVersion, UnknownSubscription, Fenced]
    assert subscriptions.take_states([]) == []
    assert subscriptions.save_states([]) == []


def test_of_many_who_take_a_state_over_at_once_the_newest_epoch_keeps_it(start_metastore: StartStore) -> None:
    managers = [SubscriptionDataManager(start_metastore()) for _ in range(3)]
    managers[0].take_state(preferences(), 0, 1)
    ready = threading.Barrier(9)

    def take(epoch: int) -> Taken | HootError:
        ready.wait(20)
        return managers[epoch % 3].take_states([TakeState(preferences(), 0, epoch)])[0]

    with ThreadPoolExecutor(9) as pool:
        outcomes = list(pool.map(take, range(2, 11)))
    assert isinstance(outcomes[-1], Versioned), "nobody fences the newest"
    for epoch, outcome in zip(range(2, 10), outcomes, strict=False):
        if isinstance(outcome, Versioned):
            assert refused(managers[0].save_state, save(200, outcome.version, epoch=epoch)) is Fenced
        else:
            assert type(outcome) is Fenced
    managers[1].save_state(save(200, outcomes[-1].version, epoch=10))


def test_a_damaged_subscription_is_listed_as_such_and_can_be_deleted(metastore: MetaStore) -> None:
    manager = SubscriptionDataManager(metastore)
    for name in ("a", "c"):
        manager.create_subscription_data(preferences(name))
    table = metastore.create_scannable_table("subscriptions")
    table.put("q\x01b", Value({"preferences": b"?"}), NEW)
    table.put("q\x01d", table.get("q\x01a").value, NEW)
    kinds = {name: type(found) for name, found in manager.list_subscriptions("q")}
    assert kinds == {"a": Versioned, "b": DamagedPreferences, "c": Versioned, "d": DamagedPreferences}
    assert refused(manager.read_subscription_data, "q", "d") is CorruptRecord
    assert refused(manager.read_subscriptions, "q") is DamagedPreferences
    for name in ("b", "d"):
        manager.delete_subscription_data("q", name, ANY)
    assert sorted(manager.read_subscriptions("q")) == ["a", "c"]


def test_a_damaged_state_keeps_no_other_from_being_taken(metastore: MetaStore) -> None:
    manager = SubscriptionDataManager(metastore)
    version = manager.create_subscription_data(preferences())
    metastore.create_scannable_table("states").put("q\x01s\x0100001", Value({"state": b"{}"}), NEW)
    outcomes = manager.take_states([TakeState(preferences(), at, 1) for at in range(3)])
    assert [type(one) for one in outcomes] == [Versioned, CorruptRecord, Versioned]
    assert refused(manager.save_state, save(1, Version(9), partition=1)) is CorruptRecord
    manager.delete_subscription_data("q", "s", version)
    assert list(metastore.create_scannable_table("states").open_cursor().read_entries(9)) == []


def test_names_and_numbers_that_cannot_be_are_refused(metastore: MetaStore) -> None:
    owners, manager = TopicOwnershipManager(metastore), SubscriptionDataManager(metastore)
    for queue, partition in (("a/b", 0), ("", 0), ("q", -1), ("q", 32767)):
        assert issubclass(refused(owners.read_owner_info, queue, partition) or object, InvalidRequest)
        assert issubclass(refused(owners.write_owner_info, queue, partition, OWNER, NEW) or object, InvalidRequest)
    for epoch in (0, -1, 10**10):
        assert refused(owners.write_owner_info, "q", 0, OwnerInfo("h", 1, epoch), NEW) is InvalidRequest
    for number in (-1, ID_MAX + 1):
        assert refused(manager.save_state, save(number, Version(0))) is InvalidRequest
    wrong = msgspec.structs.replace(preferences(), starts={0: -1})
    assert refused(manager.create_subscription_data, wrong) is InvalidRequest
    assert refused(manager.create_subscription_data, preferences("a b")) is InvalidRequest
