"""`hoot check`: the worse of verdict and thresholds, in one line that a monitor can read."""

from __future__ import annotations

from typing import Any

import pytest

from delivery.cli import run
from delivery.cli.checking import CODES, Status, Thresholds, complaints_about
from delivery.client import SubscribedPartition, SubscriptionInfo
from delivery.dispatch.observation import Observation
from delivery.dispatch.verdict import verdict
from delivery.ids import MessageId
from delivery.metastore.policy import RetryPolicy

NOW = 1_800_000_000_000


def part(partition: int, lag: int | None = 0, lag_seconds: float | None = 0.0, **facts: Any) -> SubscribedPartition:
    seen = Observation(partition=partition, now_ms=NOW, lag=lag, **facts)
    zero = MessageId(0)
    return SubscribedPartition(partition, zero, zero, zero, lag, lag_seconds, "h:1", seen.parked, seen, verdict(seen))


def info(*partitions: SubscribedPartition) -> SubscriptionInfo:
    return SubscriptionInfo("orders", "billing", NOW, True, (), None, "exclusive", "h:2", (), RetryPolicy(), partitions)


def told(found: SubscriptionInfo, lag: Thresholds | None = None, age: Thresholds | None = None) -> list[Status]:
    return [one.status for one in complaints_about(found, lag, age)]


def test_the_worst_partition_speaks_for_its_subscription() -> None:
    found = info(part(0), part(1, stage="host_unreachable", lag=None), part(2, parked=1, parked_keys=1, failures=1))
    [complaint] = complaints_about(found, None, None)
    assert complaint.status == "CRITICAL"
    assert complaint.text.startswith("orders/billing partition 1: host unreachable: ")
    assert found.worst is not None
    assert found.worst.partition == 1


@pytest.mark.parametrize(
    ("lag", "age", "expected"),
    [
        (None, None, []), (Thresholds(11, 20), None, []), (Thresholds(10, 20), None, ["WARNING"]),
        (Thresholds(5, 10), None, ["CRITICAL"]), (Thresholds(5), None, ["WARNING"]),
        (None, Thresholds(2.5, 3), ["CRITICAL"]), (Thresholds(10), Thresholds(3.5), ["WARNING"]),
    ],
)  # fmt: skip
def test_thresholds_hold_from_their_value_on(
    lag: Thresholds | None, age: Thresholds | None, expected: list[Status]
) -> None:
    assert told(info(part(0, 4, 1.0), part(1, 6, 3.0)), lag, age) == expected


def test_a_lag_that_cannot_be_had_is_no_complaint_of_its_own() -> None:
    assert told(info(part(0, None, None)), Thresholds(0, 0), Thresholds(0, 0)) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--lag", "many"], "no number"), (["--lag", "5:1"], "critical comes after"), (["--age", "long"], "no length"),
        (["--nonsense"], "--nonsense"), (["a", "b"], "b"), (["--zookeeper", "a:b:c"], "a:b:c"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_unknown_and_not_critical(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", *arguments]) == CODES["UNKNOWN"]
    out = capsys.readouterr().out
    assert out.startswith("HOOT UNKNOWN - ")
    assert says in out
    assert out.count("\n") == 1


def test_a_zookeeper_that_is_away_is_critical(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--zookeeper", "127.0.0.1:1"]) == CODES["CRITICAL"]
    assert capsys.readouterr().out.startswith("HOOT CRITICAL - ZooKeeper lost: ")
