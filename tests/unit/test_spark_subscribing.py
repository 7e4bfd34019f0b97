"""Whether a stream may read a subscription, and goes on where both its checkpoint and the subscription allow it."""

from __future__ import annotations

from typing import Any

import pytest

from delivery.errors import InvalidRequest
from delivery.filters import KEEP
from delivery.metastore.managers.records import ParkedKey, SubscriptionState
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.replays import Replay
from delivery.spark.options import ReadOptions, read_options
from delivery.spark.subscribing import MARK, Mark, PositionsDiffer, check_agrees, check_fits, marked, request_of


def record(**changes: Any) -> SubscriptionRecord:
    usual: dict[str, Any] = {"starts": {0: 0, 1: 0}, "all_partitions": True, "topics": ()}
    return SubscriptionRecord(name="s", queue="q", generation="g", created_ms=7, **(usual | changes))


def state(position: int, **changes: Any) -> SubscriptionState:
    return SubscriptionState(position, 3, "g", 7, **changes)


def options(**given: str) -> ReadOptions:
    return read_options({"queue": "q", "subscription": "s", **given}, stream=True)


STATES = {0: state(50, moves=2), 1: state(60, moves=2)}


@pytest.mark.parametrize("begins", [{0: 50, 1: 60}, {0: 50, 1: 90}, {0: 70, 1: 61, 2: 5}], ids=str)
def test_a_checkpoint_goes_on_where_it_stands_when_the_subscription_is_there_or_behind(begins: dict[int, int]) -> None:
    check_agrees(record(), STATES, begins, Mark(7, 2))


@pytest.mark.parametrize(
    ("begins", "mark", "says"),
    [
        ({0: 50, 1: 59}, Mark(7, 2), "in partition 1 somebody has read up to"),
        ({0: 50}, Mark(7, 2), "in partition 1 somebody has read up to"),
        ({0: 50, 1: 60}, Mark(7, 1), "is older than the last move"),
        ({0: 50, 1: 60}, Mark(6, 2), "was deleted"),
        ({0: 50, 1: 60}, None, "was written without subscription 's'"),
    ],
)
def test_what_the_checkpoint_cannot_know_is_one_error_that_says_what_to_do(
    begins: dict[int, int], mark: Mark | None, says: str
) -> None:
    with pytest.raises(PositionsDiffer, match=says) as caught:
        check_agrees(record(), STATES, begins, mark)
    assert "new checkpointLocation" in caught.value.message


def test_an_offset_tells_its_subscription() -> None:
    assert marked({"q": {"0": 51}, MARK: {"created": 7, "moves": 2}}) == Mark(7, 2)
    assert marked({"q": {"0": 51}}) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "shared"}, "is shared"),
        ({"replay": Replay("other", {0: 9})}, "is a replay"),
        ({"bound": 10}, "newest messages"),
        ({"newest": {0: 51}}, "newest message of each key"),
    ],
)
def test_a_subscription_that_promises_what_a_stream_cannot_do_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        check_fits(options(), record(**changes), STATES)


def test_parked_messages_are_behind_no_stream() -> None:
    with pytest.raises(InvalidRequest, match="hoot subscription parked"):
        check_fits(options(), record(), {0: state(50, parked=(ParkedKey(b"k", (9,)),))})
    check_fits(options(), record(newest={0: 50}), STATES)  # it is past where it began with the newest


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topics": "b"}, "topics"),
        ({"filter": "key = 'x'"}, "filter"),
        ({"queue": "", "assign": '{"q": [1]}'}, "partitions"),
        ({"isolation": "committed"}, "isolation"),
    ],
)
def test_a_stream_that_asks_for_other_messages_than_its_subscription_is_refused(
    given: dict[str, str], says: str
) -> None:
    chosen = {"queue": "q", "subscription": "s", **given}
    asked = read_options({name: text for name, text in chosen.items() if text}, stream=True)
    with pytest.raises(InvalidRequest, match=f"has other {says}"):
        check_fits(asked, record(topics=("a",)), STATES)


def test_a_new_subscription_is_as_the_options_say_and_an_old_one_stays_as_it_is() -> None:
    asked = request_of(options(topics="a,b", filter="key = 'x'", isolation="committed"), None, {0: 5, 1: 6})
    assert asked.isolation == "committed"
    assert (asked.topics, asked.partitions, asked.starts) == (("a", "b"), None, {0: 5, 1: 6})
    assert asked.filter
    kept = request_of(options(), record(all_partitions=False, topics=("a",)), {})
    assert (kept.topics, kept.partitions, kept.starts) == (KEEP, (0, 1), {})
    check_fits(options(topics="a", filter="key = 'x'"), record(topics=("a",), filter=asked.filter), STATES)
