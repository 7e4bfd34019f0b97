"""What the catalog builds on: subscriptions that are touched, read many at a time, and end with their queue."""

from __future__ import annotations

import pytest

from delivery.errors import BadVersion, UnknownSubscription
from delivery.metastore.managers import subscriptions as managers_subscriptions
from delivery.metastore.managers.changes import SaveState
from delivery.metastore.managers.subscriptions import DamagedPreferences, SubscriptionDataManager
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from tests.metastore_managers import preferences, save, state
from tests.metastore_tables import NEW, StartStore, refused


@pytest.fixture
def subscriptions(metastore: MetaStore) -> SubscriptionDataManager:
    return SubscriptionDataManager(metastore)


def test_a_save_of_an_earlier_subscription_that_meets_the_same_version_is_saved_over(
    start_metastore: StartStore,
) -> None:
    """A host took a state and was away; meanwhile the subscription was deleted and made again, and began as it had."""
    away, here = SubscriptionDataManager(start_metastore()), SubscriptionDataManager(start_metastore())
    again = preferences(created_ms=9)
    held = away.take_state(preferences(), 0, 1).version
    version = here.create_subscription_data(preferences())
    here.delete_subscription_data("q", "s", version)
    here.create_subscription_data(again)
    taken = here.take_state(again, 0, 2)
    assert taken.version == held, "nothing tells the two apart but what is in them"
    away.save_state(save(999, held))
    assert here.read_states(again) == {}
    mine = SaveState("q", "s", 0, state(105, 2, 9), taken.version)
    assert here.save_state(mine) == Version(held.number + 2)
    assert here.read_states(again)[0].value == state(105, 2, 9)
    assert refused(away.save_state, save(1000, Version(held.number + 1))) is UnknownSubscription


def test_a_touch_is_an_update_that_changes_nothing_but_the_version(subscriptions: SubscriptionDataManager) -> None:
    version = subscriptions.create_subscription_data(preferences())
    touched = subscriptions.touch_subscription_data(preferences(), version)
    assert subscriptions.read_preferences("q", "s") == Versioned(preferences(), touched)
    assert refused(subscriptions.touch_subscription_data, preferences(), version) is BadVersion
    assert refused(subscriptions.delete_subscription_data, "q", "s", version) is BadVersion
    subscriptions.delete_subscription_data("q", "s", touched)
    assert refused(subscriptions.touch_subscription_data, preferences(), touched) is UnknownSubscription


def test_all_of_a_queue_is_deleted_and_who_comes_meanwhile_goes_with_it(
    subscriptions: SubscriptionDataManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managers_subscriptions, "PAGE_MAX", 3)
    for queue in ("p", "q", "q2"):
        for name in "abcdefg":
            subscriptions.create_subscription_data(preferences(name, queue))
            subscriptions.take_state(preferences(name, queue), 1, 1)
    touched: list[str] = []

    def touch() -> None:
        found = subscriptions.read_preferences("q", "b")
        if found is not None and not touched:
            subscriptions.touch_subscription_data(found.value, found.version)
            touched.append("b")

    subscriptions.take_state(preferences("nobodys"), 0, 1)
    subscriptions.delete_all_subscription_data("q", touch)
    assert touched == ["b"]
    assert subscriptions.list_subscription_names("q", None, 3) == []
    assert subscriptions.read_states(preferences("nobodys")) == subscriptions.read_states(preferences("b")) == {}
    for queue in ("p", "q2"):
        assert len(subscriptions.list_subscriptions(queue, None, 3)) == 3
        assert set(subscriptions.read_states(preferences("g", queue))) == {1}


def test_versions_and_many_preferences_are_read_damaged_or_not(metastore: MetaStore) -> None:
    manager = SubscriptionDataManager(metastore)
    version = manager.create_subscription_data(preferences())
    metastore.create_scannable_table("subscriptions").put("q\x01t", Value({"preferences": b"{}"}), NEW)
    found = manager.read_many_preferences([("q", "s"), ("q", "t"), ("q", "u")])
    assert [type(one) for one in found] == [Versioned, DamagedPreferences, type(None)]
    assert [manager.read_version("q", name) for name in "stu"] == [version, Version(0), None]
    assert manager.names_around("q", "sx") == ["s", "t"]
    assert manager.names_around("r", "s") == []
