"""What subscribing asks for: the choices of partitions, topics and starts, and the durable record they make."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from delivery.errors import InvalidRequest, SubscriptionExists, UnknownPartition, UnknownSubscription
from delivery.filters import KEEP
from delivery.ids import EARLIEST, ID_MAX, LATEST, MessageId, check_start, first_id_at
from delivery.metastore.flow import Flow, Pause
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import QueueRecord, SubscriptionRecord, differing_options
from delivery.metastore.replays import Replay
from delivery.metastore.request import check_request, new_record, rebased
from delivery.model import QueueSettings

NOW_MS = 1_732_165_000_000
QUEUE = QueueRecord("flights", "g1", 1, QueueSettings(partitions=4))
LAST = {0: 0, 1: first_id_at(NOW_MS) - 500, 2: first_id_at(NOW_MS) + 40_000, 3: first_id_at(NOW_MS - 10_000)}


def never(partition: int) -> int:
    raise AssertionError(f"no host needs to be asked about partition {partition}")


def record(
    found: SubscriptionRecord | None = None, last_id: Callable[[int], int] = LAST.__getitem__, **request: Any
) -> SubscriptionRecord:
    asked = {"partitions": None, "topics": None, "start": "latest", **request}
    return new_record(check_request("flights", **asked), "audit", QUEUE, found, last_id, NOW_MS)


# -- starts


def test_an_id_is_the_first_one_wanted() -> None:
    wanted = MessageId.of(NOW_MS, 7)
    assert check_start(wanted) == wanted - 1
    assert check_start(int(wanted)) == wanted - 1
    assert check_start(str(wanted)) == wanted - 1
    assert check_start(0) == EARLIEST
    assert check_start(ID_MAX) == ID_MAX - 1


def test_a_time_is_the_first_one_wanted_in_any_time_zone() -> None:
    at = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert check_start(at) == first_id_at(NOW_MS) - 1
    assert check_start(at.astimezone(timezone(timedelta(hours=5, minutes=30)))) == first_id_at(NOW_MS) - 1
    assert check_start(at + timedelta(microseconds=1)) == first_id_at(NOW_MS + 1) - 1
    assert check_start(datetime(1969, 1, 1, tzinfo=UTC)) == EARLIEST
    assert check_start(at.isoformat()) == check_start("2024-11-21T04:56:40Z") == first_id_at(NOW_MS) - 1


def test_the_two_words() -> None:
    assert (check_start("earliest"), check_start("latest")) == (EARLIEST, LATEST)


@pytest.mark.parametrize(
    "start",
    ["newest", "", "2024-11-21T04:56:40", "12-99999", "-5", -1, ID_MAX + 1, True, 1.5, None, datetime(2024, 1, 1)],  # noqa: DTZ001
)
def test_anything_else_is_no_start(start: Any) -> None:
    with pytest.raises(InvalidRequest):
        check_start(start)


# -- what is asked for


def test_partitions_may_be_a_number_some_numbers_or_a_dict_with_starts() -> None:
    assert check_request("flights", 2, None, "latest").partitions == (2,)
    assert check_request("flights", [3, 1, 3], None, "latest").partitions == (1, 3)
    assert check_request("flights", range(2), None, "latest").partitions == (0, 1)
    request = check_request("flights", {0: "earliest", 3: 100}, None, "latest")
    assert (request.partitions, request.starts) == ((0, 3), {0: EARLIEST, 3: 99})


def test_starts_may_be_a_dict_and_other_partitions_begin_at_the_latest_message() -> None:
    assert record(start={1: "earliest"}).starts == {**LAST, 1: EARLIEST}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"partitions": []}, "at least one"),
        ({"partitions": ["0"]}, "a number"),
        ({"partitions": [True]}, "a number"),
        ({"partitions": 1.5}, "numbers"),
        ({"partitions": {0: "earliest"}, "start": {0: "latest"}}, "twice"),
        ({"partitions": [0], "start": {1: "latest"}}, "partition 1"),
        ({"topics": []}, "topics"),
        ({"topics": [""]}, "no topic name"),
        ({"topics": ["a b"]}, "no topic name"),
        ({"topics": [f"t{n}" for n in range(1001)]}, "1 to 1000"),
    ],
)
def test_nonsense_is_refused_before_anything_is_asked(request_: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_request("flights", **{"partitions": None, "topics": None, "start": "latest", **request_})


@pytest.mark.parametrize("name", ["..", "", "a/b", "%2e%2e", "a\r\nb", "a\0", "x" * 10_000, None])
def test_bad_queue_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidRequest, match="no queue name"):
        check_request(name, None, None, "latest")


def test_one_topic_may_stand_alone() -> None:
    assert check_request("flights", None, "JFK", "latest").topics == ("JFK",)
    assert check_request("flights", None, ["LGA", "JFK", "LGA"], "latest").topics == ("JFK", "LGA")


def test_topics_may_be_patterns_and_a_filter_is_kept_as_a_rule() -> None:
    request = check_request("flights", None, ["J*", "LGA"], "latest", "carrier='UA'")
    assert request.topics == ("J*", "LGA")
    assert request.filter == '{"sql":"carrier = \'UA\'"}'
    assert check_request("flights", None, None, "latest", None).filter is None


@pytest.mark.parametrize("filter_", ["carrier =", "", {"exact": {}}, [], 7])
def test_a_filter_that_does_not_parse_is_refused(filter_: Any) -> None:
    with pytest.raises(InvalidRequest, match="filter"):
        check_request("flights", None, None, "latest", filter_)


# -- the record


def test_topics_and_filter_stay_where_they_are_left_out_and_none_takes_them_away() -> None:
    made = record(topics=["JFK"], filter="carrier = 'UA'")
    assert record(made, topics=KEEP) == made
    assert record(made, topics=KEEP, filter=None) == msgspec.structs.replace(made, filter=None)
    assert record(made, topics=None) == msgspec.structs.replace(made, topics=())
    assert record(made, topics="LGA", filter="TRUE") == msgspec.structs.replace(
        made, topics=("LGA",), filter='{"sql":"TRUE"}'
    )
    assert (record(topics=KEEP).topics, record().filter) == ((), None)


def test_a_new_subscription_begins_at_the_last_ids_of_all_partitions() -> None:
    made = record()
    assert made.starts == LAST
    assert made.all_partitions
    assert (made.generation, made.created_ms, made.topics) == ("g1", NOW_MS, ())


def test_a_start_in_the_past_needs_no_host() -> None:
    for start in ("earliest", MessageId.of(NOW_MS - 1), datetime.fromtimestamp(NOW_MS / 1000 - 1, UTC)):
        assert set(record(last_id=never, start=start).starts) == {0, 1, 2, 3}


@pytest.mark.parametrize("partitions", [[4], [0, 4], [-1], {9: "earliest"}])
def test_a_partition_that_the_queue_lacks_is_unknown(partitions: Any) -> None:
    with pytest.raises(UnknownPartition, match="partitions 0 to 3"):
        record(last_id=never, partitions=partitions)


def test_a_start_for_a_partition_that_the_queue_lacks_is_refused() -> None:
    with pytest.raises(UnknownPartition):
        record(start={4: "earliest"})


def test_a_start_in_the_future_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="lies in the future of partition 0"):
        record(start=MessageId.of(NOW_MS + 60_000))
    with pytest.raises(InvalidRequest, match="future"):
        record(start=datetime.fromtimestamp(NOW_MS / 1000 + 60, UTC))


def test_an_id_above_the_clock_is_fine_where_the_partition_is_that_far() -> None:
    next_one = LAST[2] + 1
    assert record(partitions=[2], start=next_one).starts == {2: LAST[2]}
    with pytest.raises(InvalidRequest, match="future"):
        record(partitions=[2], start=next_one + 1)


# -- attaching to what is there

EXISTING = SubscriptionRecord(
    name="audit", queue="flights", generation="g1", created_ms=5, starts={0: 17, 1: 18}, all_partitions=False,
    topics=("JFK",),
)  # fmt: skip


def test_known_partitions_keep_their_starts_and_new_ones_get_theirs() -> None:
    made = record(EXISTING, never, start="earliest")
    assert made.starts == {0: 17, 1: 18, 2: EARLIEST, 3: EARLIEST}
    assert (made.all_partitions, made.topics, made.created_ms) == (True, (), 5)


def test_the_same_request_makes_the_same_record() -> None:
    assert record(EXISTING, never, partitions=[0, 1], topics=["JFK"], start="latest") == EXISTING


def test_a_retry_policy_stays_until_another_is_asked_for_and_is_checked_before_anything_is_written() -> None:
    policy, other = RetryPolicy(order="key"), RetryPolicy(deliveries_max=5)
    assert record(None, partitions=[0], start="earliest").retry == RetryPolicy()
    replay = Replay("real", {0: 9}, 2.0)
    kept = msgspec.structs.replace(EXISTING, retry=policy, released_ms=8, replay=replay, replayed_ms=9)
    made = record(kept, never, partitions=[0, 1])
    assert (made.retry, made.released_ms, made.replay, made.replayed_ms) == (policy, 8, replay, 9)
    assert record(kept, never, partitions=[0, 1], retry=other).retry == other
    merged = record(kept, never, partitions=[0, 1], retry={"deliveries_max": 5}).retry
    assert (merged.order, merged.deliveries_max) == ("key", 5)
    with pytest.raises(InvalidRequest, match="deliveries_max"):
        check_request("flights", None, None, "latest", retry=RetryPolicy(deliveries_max=-1))


def test_the_newest_of_each_key_is_wanted_up_to_what_is_stored_where_a_partition_is_new() -> None:
    made = record(start="latest-per-key")
    assert (made.starts, made.newest) == (dict.fromkeys(LAST, EARLIEST), LAST)
    assert record(made, never).newest == LAST, "a start counts once"
    assert record(EXISTING, start="latest-per-key").newest == {2: LAST[2], 3: LAST[3]}
    assert record(partitions={0: "earliest"}, start="latest-per-key").newest == {}
    assert record(None, never, start="earliest").newest == {}


def test_names_that_leave_none_for_the_dead_letters_are_refused_when_these_are_asked_for() -> None:
    def made(retry: RetryPolicy | None) -> SubscriptionRecord:
        asked = check_request("flights", 0, None, "earliest", retry=retry)
        return new_record(asked, "a" * 240, QUEUE, None, never, NOW_MS)

    with pytest.raises(InvalidRequest, match="too long together"):
        made(RetryPolicy(deliveries_max=3))
    made(RetryPolicy(dead_letters=False))
    made(None)


def test_a_subscription_left_over_from_an_earlier_queue_of_the_name_counts_for_nothing() -> None:
    old = SubscriptionRecord(
        name="audit", queue="flights", generation="g0", created_ms=5, starts={0: 17}, all_partitions=False, topics=()
    )
    made = record(old, partitions=[0], start="earliest")
    assert (made.starts, made.generation, made.created_ms) == ({0: EARLIEST}, "g1", NOW_MS)


def test_a_bound_stays_until_another_is_given_and_none_is_taken_that_cannot_be() -> None:
    made = record(None, partitions=[0], start="earliest", bound=5)
    assert (made.bound, record(None, partitions=[0], start="earliest").bound) == (5, 0)
    assert record(made, never, partitions=[0]).bound == 5
    assert record(made, never, partitions=[0], bound=20).bound == 20
    assert record(made, never, partitions=[0], bound=0).bound == 0
    for wrong in (-1, 1.5, True, "5", 10**10):
        with pytest.raises(InvalidRequest, match="bound is a number"):
            record(made, never, partitions=[0], bound=wrong)


def test_who_creates_finds_none_and_who_attaches_finds_one() -> None:
    made = record(None, partitions=[0], start="earliest", mode="create")
    assert record(made, never, partitions=[0], mode="attach") == made
    assert record(made, never, partitions=[0], mode="create_or_attach") == made
    with pytest.raises(SubscriptionExists, match="'audit' already"):
        record(made, never, partitions=[0], mode="create")
    with pytest.raises(UnknownSubscription, match="'audit' to attach to"):
        record(None, never, partitions=[0], mode="attach")
    with pytest.raises(UnknownSubscription):
        record(msgspec.structs.replace(made, generation="g0"), never, partitions=[0], mode="attach")
    with pytest.raises(InvalidRequest, match="create_or_attach, create, attach, not 'make'"):
        record(None, never, mode="make")


def test_names_that_begin_with_two_underscores_are_not_for_applications() -> None:
    asked = check_request("flights", 0, None, "earliest")
    with pytest.raises(InvalidRequest, match="Hoot's own"):
        new_record(asked, "__audit", QUEUE, None, never, NOW_MS)
    assert new_record(asked, "_audit__", QUEUE, None, never, NOW_MS).name == "_audit__"


# -- what was planned and is written later


def changed(found: SubscriptionRecord, **fields: Any) -> SubscriptionRecord:
    return msgspec.structs.replace(found, **fields)


def test_a_plan_made_before_a_seek_and_written_after_it_does_not_bring_the_newest_back() -> None:
    """Whoever seeks wants all messages from there on: who attaches at that moment must not undo it."""
    found = record(start="latest-per-key")
    assert found.newest == LAST
    planned = record(found, topics=["a"])
    sought = changed(found, moves=1, newest={})
    assert rebased(planned, found, sought) == changed(sought, topics=("a",))


def test_partitions_that_a_plan_adds_begin_as_it_says_though_somebody_has_sought_in_the_others() -> None:
    found = record(partitions=[0, 1], start="latest-per-key")
    planned = record(found, partitions=[0, 1, 3], start="latest-per-key")
    merged = rebased(planned, found, changed(found, moves=1, newest={}))
    assert (merged.newest, merged.moves, sorted(merged.starts)) == ({3: LAST[3]}, 1, [0, 1, 3])


def test_what_an_operator_changes_between_a_plan_and_its_writing_stays() -> None:
    found = record()
    planned = record(found, retry={"deliveries_max": 3})
    paused = changed(
        found, pause=Pause(since_ms=5), flow=Flow(messages_per_second=9), released_ms=7, holders={"m": (0,)}
    )
    assert rebased(planned, found, paused) == changed(paused, retry=RetryPolicy(deliveries_max=3))


def test_a_pause_is_nothing_that_members_must_have_asked_for_alike() -> None:
    found = record(kind="shared")
    assert differing_options(found, changed(found, pause=Pause(since_ms=5))) == []
    assert differing_options(found, changed(found, bound=5)) == ["bound"]
