"""The record of a replay: what it has of the subscription it is made of, and what is its own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from delivery.client.replays import Stretch, shadow_of
from delivery.errors import InvalidRequest
from delivery.filters import KEEP
from delivery.ids import MessageId
from delivery.metastore.managers.records import check_preferences
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import SubscriptionRecord, differing_options
from delivery.metastore.replays import Replay, replay_queue

REAL = SubscriptionRecord(
    name="real", queue="q", generation="g", created_ms=5, starts={0: 1, 1: 2}, all_partitions=True, topics=("a",),
    filter='{"sql":"TRUE"}', moves=3, newest={0: 9}, released_ms=4, retry=RetryPolicy(order="key"), kind="shared",
    bound=7, holders={"m": (0, 1)}, replayed_ms=6,
)  # fmt: skip
STRETCHES = [Stretch(0, MessageId(10), MessageId(20), 4), Stretch(1, MessageId(10), MessageId(10), 0)]


def test_a_shadow_takes_what_the_real_one_takes_from_its_own_beginning_to_its_end() -> None:
    shadow = shadow_of(REAL, "shadow", STRETCHES, 2.0, KEEP, 77)
    assert shadow == replace(
        REAL, name="shadow", created_ms=77, starts={0: 10, 1: 10}, moves=0, newest={}, released_ms=0, holders={},
        bound=0, replay=Replay("real", {0: 20, 1: 10}, 2.0), replayed_ms=0,
    )  # fmt: skip
    assert check_preferences(shadow) is None


def test_a_shadow_may_have_another_filter_or_none() -> None:
    assert shadow_of(REAL, "shadow", STRETCHES, 0.0, None, 77).filter is None
    other = shadow_of(REAL, "shadow", STRETCHES, 0.0, "total > 3", 77).filter
    assert other is not None
    assert "total > 3" in other


def test_members_of_a_group_need_not_know_how_far_the_newest_of_each_key_are_asked_for() -> None:
    """It comes about when the first of them makes the subscription, and ends when somebody moves it."""
    assert differing_options(REAL, replace(REAL, newest={})) == []
    assert differing_options(REAL, replace(REAL, replayed_ms=0)) == [], "nor that something was replayed to them"


def test_a_queue_of_replays_needs_a_name_that_can_be() -> None:
    assert replay_queue("orders", "billing") == "orders.billing.replay"
    assert len(replay_queue("q" * 121, "s" * 120)) == 249
    with pytest.raises(InvalidRequest, match="too long together"):
        replay_queue("q" * 121, "s" * 121)
