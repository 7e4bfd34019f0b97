"""Subscriptions for Prometheus: the worst verdict and the sums of the partitions; what is not known has no sample."""

from __future__ import annotations

from typing import Any

from delivery.api.exposing import Standing, collected
from delivery.dispatch.observation import Observation

NOW = 1_800_000_000_000


def seen(partition: int, **facts: Any) -> Observation:
    return Observation(**{
        "partition": partition, "now_ms": NOW, "began_ms": NOW - 1000, "delivered_ms": NOW - 500, "lag": 0,
        "lag_bytes": 0, **facts,
    })  # fmt: skip


def samples(*standings: Standing) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.name: {tuple(one.labels.values()): one.value for one in family.samples}
        for family in collected(standings)
    }


def test_the_partitions_of_a_subscription_are_one_sample() -> None:
    parts = [
        seen(0, lag=3, lag_bytes=300, oldest_ms=NOW - 2000, redelivered=4, parked=1, parked_keys=1, failures=1),
        seen(1, lag=2, lag_bytes=100, oldest_ms=NOW - 9000, redelivered=1, delivered_ms=NOW),
    ]
    found = samples(Standing("orders", "billing", parts))
    place = ("orders", "billing")
    assert found["hoot_subscription_verdict"] == {(*place, "key_parked"): 1}
    assert found["hoot_redelivered_messages"] == {place: 5}
    assert found["hoot_subscription_backlog_messages"] == {place: 5}
    assert found["hoot_subscription_backlog_bytes"] == {place: 400}
    assert found["hoot_subscription_oldest_unacknowledged_seconds"] == {place: 9}
    assert found["hoot_subscription_parked_messages"] == {place: 1}
    assert found["hoot_subscription_last_delivered_timestamp_seconds"] == {place: NOW / 1000}
    assert found["hoot_subscription_last_checkpointed_timestamp_seconds"] == {place: 0}


def test_a_backlog_that_was_not_counted_everywhere_has_no_sample() -> None:
    found = samples(Standing("orders", "billing", [seen(0, lag=3), seen(1, lag=None)]))
    assert found["hoot_subscription_backlog_messages"] == {}
    assert found["hoot_subscription_oldest_unacknowledged_seconds"] == {}
    assert found["hoot_subscription_verdict"] == {("orders", "billing", "healthy"): 1}
