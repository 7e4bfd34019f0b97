"""Which invalid transactions are forgotten: only those of which nothing is stored, however messages and clocks lie."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
from hypothesis import given, strategies as st

from delivery import wall
from delivery.client.calls import Calls
from delivery.client.forgetting import Forgetting
from delivery.errors import UnknownQueue
from delivery.ids import first_id_at
from delivery.messaging.names import TRANSACTION_LIFE_MS
from delivery.metastore.catalog import Catalog
from delivery.metastore.records import QueueRecord, TopicRecord
from delivery.model import QueueSettings
from delivery.transactions.forgetting import SKEW_MS, forgettable_before

HOUR = 3_600_000
NOW = 1_700_000_000_000


class Published(NamedTuple):
    """A message of an invalid transaction, by the clock of the partition's owner."""

    partition: int
    began: int
    at: int


PUBLISHED = st.builds(
    lambda partition, hours, after, skew: Published(
        partition, NOW - hours * HOUR, NOW - hours * HOUR + min(after * HOUR, TRANSACTION_LIFE_MS) + skew * HOUR // 2
    ),
    st.integers(0, 2), st.integers(0, 200), st.integers(0, 25), st.integers(-2, 2),
)  # fmt: skip


@given(st.lists(PUBLISHED), st.lists(st.integers(0, 200), min_size=3, max_size=3), st.booleans())
def test_nothing_is_stored_of_what_is_forgotten_and_what_can_be_forgotten_is(
    published: list[Published], dropped: list[int], has_others: bool
) -> None:
    """Each partition dropped what is older than some hours; with others, plain messages are stored from then on."""
    limits = [NOW - hours * HOUR for hours in dropped]
    stored = [one for one in published if one.at >= limits[one.partition]]
    firsts = []
    for partition, limit in enumerate(limits):
        times = [one.at for one in stored if one.partition == partition] + [limit] * has_others
        firsts.append(first_id_at(min(times)) if times else 0)
    before = forgettable_before(firsts, NOW)
    assert all(one.began >= before for one in stored)
    assert before <= NOW - TRANSACTION_LIFE_MS
    oldest = min([NOW, *(one.at for one in stored), *(limits if has_others else ())])
    assert before == oldest - TRANSACTION_LIFE_MS - SKEW_MS


class Cluster:
    """Queues, and the lowest id of each partition; some were deleted while somebody looks."""

    def __init__(self, firsts: dict[tuple[str, int], int | None]) -> None:
        self.firsts, self.asked = firsts, list[tuple[str, int]]()

    def queue_records(self) -> list[QueueRecord]:
        plain = QueueRecord("plain", "g", 0, QueueSettings(partitions=1))
        marked = msgspec.structs.replace(plain, name="marked", transactional=True)
        topic = msgspec.structs.replace(plain, name="ns.t", topic=TopicRecord(1, 10, {}))
        return [plain, msgspec.structs.replace(marked, settings=QueueSettings(partitions=2)), topic]

    def call(self, queue: str, partition: int, method: str, *arguments: object) -> Any:
        assert (method, arguments) == ("partitionInfo", (queue, partition))
        self.asked.append((queue, partition))
        first = self.firsts[queue, partition]
        if first is None:
            raise UnknownQueue("deleted")
        return SimpleNamespace(firstId=first)


def test_what_may_hold_messages_of_transactions_is_asked_and_what_settled_it_last_is_asked_first() -> None:
    now = wall.ms()
    old = first_id_at(now - 100 * HOUR)
    cluster = Cluster({("marked", 0): 0, ("marked", 1): old, ("ns.t", 0): None})
    forgetting = Forgetting(cast("Catalog", cluster), cast("Calls", cluster))
    assert forgetting.before_ms(now - 90 * HOUR) == 0
    assert cluster.asked == [("marked", 0), ("marked", 1)]
    cluster.asked.clear()
    assert forgetting.before_ms(now - 120 * HOUR) == 0
    assert cluster.asked == [("marked", 1)]
    assert forgetting.before_ms(now - 130 * HOUR) == now - 100 * HOUR - TRANSACTION_LIFE_MS - SKEW_MS
    assert ("ns.t", 0) in cluster.asked
