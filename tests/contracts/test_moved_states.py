"""Moving a subscription's position by hand, over every MetaStore."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from delivery.errors import BadVersion, CorruptRecord, UnknownPartition, UnknownSubscription
from delivery.metastore.managers.changes import MoveState
from delivery.metastore.managers.records import Attempts, ParkedKey
from delivery.metastore.managers.subscriptions import SubscriptionDataManager
from delivery.metastore.tables.base import MetaStore
from delivery.metastore.tables.values import Value
from delivery.metastore.tables.versions import Version, Versioned
from tests.metastore_managers import preferences, save, state
from tests.metastore_tables import refused


@pytest.fixture
def subscriptions(metastore: MetaStore) -> SubscriptionDataManager:
    return SubscriptionDataManager(metastore)


def moved(manager: SubscriptionDataManager, position: int, moves: int = 1, *, anyhow: bool = False) -> object:
    [outcome] = manager.move_states([MoveState(preferences(), 0, position, moves, anyhow=anyhow)])
    return outcome.value if isinstance(outcome, Versioned) else type(outcome)


def test_an_owner_saves_nothing_over_a_move_and_finds_it_when_it_begins_anew(
    subscriptions: SubscriptionDataManager,
) -> None:
    held = subscriptions.save_state(save(150, subscriptions.take_state(preferences(), 0, 3).version, epoch=3))
    assert moved(subscriptions, 40) == state(40, 3, moves=1)
    assert refused(subscriptions.save_state, save(160, held, epoch=3)) is BadVersion
    again = subscriptions.take_state(preferences(), 0, 3)
    assert again.value == state(40, 3, moves=1)
    assert subscriptions.take_state(preferences(), 0, 4).value == state(40, 4, moves=1)


def test_a_number_is_good_for_one_move_but_for_a_copy_that_is_put_right(subscriptions: SubscriptionDataManager) -> None:
    assert moved(subscriptions, 40, moves=2) == state(40, 0, moves=2)
    assert moved(subscriptions, 50, moves=2) == moved(subscriptions, 50, moves=1) == BadVersion
    assert subscriptions.take_state(preferences(), 0, 1).value == state(40, 1, moves=2)
    assert moved(subscriptions, 50, moves=2, anyhow=True) == state(50, 1, moves=2)
    assert moved(subscriptions, 60, moves=3) == state(60, 1, moves=3)


def test_a_takeover_keeps_what_failed_and_what_is_parked_and_a_move_forgets_both(
    subscriptions: SubscriptionDataManager,
) -> None:
    """Messages that a move brings again would else come a second time as parked ones."""
    failing, parked = Attempts(150, failures=2), (ParkedKey(b"k", (120, 130), failures=1),)
    taken = subscriptions.take_state(preferences(), 0, 3)
    held = replace(state(150, 3), failing=failing, parked=parked)
    subscriptions.save_state(replace(save(150, taken.version, epoch=3), state=held))
    assert subscriptions.take_state(preferences(), 0, 4).value == replace(held, epoch=4)
    assert moved(subscriptions, 40) == state(40, 4, moves=1)


def test_a_position_that_no_owner_has_begun_with_can_be_moved(subscriptions: SubscriptionDataManager) -> None:
    assert moved(subscriptions, 700) == state(700, 0, moves=1)
    assert subscriptions.take_state(preferences(), 0, 1).value == state(700, 1, moves=1)


def test_the_state_of_an_earlier_subscription_of_the_name_is_not_gone_on_with(
    subscriptions: SubscriptionDataManager,
) -> None:
    subscriptions.take_state(preferences(created_ms=1), 0, 9)
    assert moved(subscriptions, 40) == state(40, 0, moves=1)


def test_who_has_not_heard_of_a_deletion_takes_nothing_over_of_the_subscription_that_came_after_it(
    subscriptions: SubscriptionDataManager,
) -> None:
    former, new = preferences(created_ms=9), preferences()  # times of two clocks, which prove nothing
    version = subscriptions.create_subscription_data(former)
    subscriptions.take_state(former, 0, 1)
    subscriptions.delete_subscription_data("q", "s", version)
    version = subscriptions.create_subscription_data(new)
    assert moved(subscriptions, 40) == state(40, 0, moves=1)
    assert refused(subscriptions.take_state, former, 0, 1) is UnknownSubscription
    assert subscriptions.take_state(new, 0, 1).value == state(40, 1, moves=1)
    subscriptions.delete_subscription_data("q", "s", version)
    subscriptions.create_subscription_data(former)
    assert subscriptions.take_state(former, 0, 1).value == state(100, created_ms=9), (
        "what is left over counts for nobody"
    )


def test_what_cannot_be_moved_is_told_each_by_itself(metastore: MetaStore) -> None:
    manager = SubscriptionDataManager(metastore)
    metastore.create_scannable_table("states").put("q\x01s\x0100001", Value({"state": b"{}"}), Version.NEW)
    outcomes = manager.move_states([MoveState(preferences(), at, 5, 1) for at in (0, 1, 7)])
    assert [type(one) for one in outcomes] == [Versioned, CorruptRecord, UnknownPartition]
