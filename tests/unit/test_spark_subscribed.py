"""What a replay to a subscription decides: which messages it takes, and what becomes of them."""

from __future__ import annotations

import msgspec
import pytest

from delivery.errors import InvalidRequest
from delivery.ids import LATEST
from delivery.metastore.flow import Flow
from delivery.metastore.managers.records import check_preferences
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import QueueRecord, SubscriptionRecord
from delivery.model import BODY_BYTES_LIMIT, QueueSettings
from delivery.spark.jobs.choosing import Chosen, decided_end
from delivery.spark.jobs.subscribed import heir_of, settings_like, taken_by

CHOSEN = Chosen(zookeeper="zk:1", queue="orders", start=7)
BILLING = SubscriptionRecord(
    name="billing", queue="orders", generation="g", created_ms=5, starts={2: 9, 0: 7}, all_partitions=False,
    topics=("a", "b.*"), filter='{"sql":"TRUE"}', moves=3, newest={0: 9}, released_ms=4, kind="shared", bound=7,
    retry=RetryPolicy(order="key"), holders={"m": (0, 2)}, isolation="committed", flow=Flow(messages_per_second=5.0),
    replayed_ms=6,
)  # fmt: skip


def test_what_the_subscription_takes_is_taken_unless_topics_or_a_filter_are_named() -> None:
    taken = taken_by(BILLING, CHOSEN)
    assert (taken.topics, taken.filter, taken.partitions) == (("a", "b.*"), '{"sql":"TRUE"}', (0, 2))
    assert (taken.isolation, taken.start, taken.queue) == ("committed", 7, "orders")
    assert taken_by(BILLING, taken) == taken, "told of its end first, it is the same once more"
    other = taken_by(BILLING, msgspec.structs.replace(CHOSEN, topics=("c",), filter="x = 1"))
    assert (other.topics, other.filter) == (("c",), "x = 1")
    everything = msgspec.structs.replace(BILLING, all_partitions=True, filter=None, topics=())
    assert taken_by(everything, CHOSEN) == msgspec.structs.replace(CHOSEN, isolation="committed")


def test_replays_are_handled_as_the_subscription_is_and_all_that_are_stored_for_it_come() -> None:
    queue = QueueRecord("orders.billing.replay", "h", 8, QueueSettings(partitions=3))
    heir = heir_of(BILLING, queue, {0: 0, 1: 4, 2: 0}, 77)
    assert (heir.name, heir.queue, heir.generation, heir.created_ms) == ("billing", queue.name, "h", 77)
    assert (heir.starts, heir.all_partitions, heir.topics, heir.filter) == ({0: 0, 1: 4, 2: 0}, True, (), None)
    assert (heir.retry, heir.kind, heir.flow) == (BILLING.retry, "shared", BILLING.flow)
    assert (heir.bound, heir.newest, heir.moves, heir.holders, heir.replayed_ms) == (0, {}, 0, {}, 0)
    assert heir.isolation == "uncommitted", "a copy is of no transaction"
    assert check_preferences(heir) is None


def test_a_queue_of_replays_forgets_nothing_and_holds_up_no_publisher() -> None:
    source = QueueSettings(
        partitions=3, durability="os", ttl_seconds=60, retention_bytes=1 << 30, backlog_messages=5, archive="/a",
        archive_first=True, closed=True, layout="rows",
    )  # fmt: skip
    expected = QueueSettings(partitions=3, durability="os", layout="rows", body_bytes_max=BODY_BYTES_LIMIT)
    assert settings_like(source) == expected


def test_a_replay_of_what_is_committed_ends_before_the_first_message_of_which_that_is_not_known() -> None:
    assert decided_end(LATEST, [(90, 90), (0, 0)]) == LATEST
    assert decided_end(LATEST, [(90, 70), (80, 80), (95, 75)]) == 70
    assert decided_end(60, [(90, 70), (80, 80)]) == 60
    assert decided_end(70, [(90, 70), (80, 80)]) == 70
    assert decided_end(500, [(90, 90), (80, 80)]) == 500
    with pytest.raises(InvalidRequest, match="in progress has published from 0-71 on"):
        decided_end(71, [(90, 70), (80, 80)])
