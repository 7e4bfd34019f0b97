"""What `hoot subscription info` shows of the members of a group."""

from __future__ import annotations

from delivery.cli.members import ranges, what
from delivery.client.groups import Member, members_of
from delivery.metastore.managers.records import Share, SubscriptionState
from delivery.metastore.records import ListenerRecord, SubscriptionRecord

RECORD = SubscriptionRecord(
    name="s", queue="q", generation="g", created_ms=1, starts={0: 0, 1: 0}, all_partitions=True, topics=(),
    kind="key_shared",
)  # fmt: skip


def test_who_shares_partitions_by_key_is_shown_with_its_part_of_each() -> None:
    parts = (Share("a", ((0, 1023),), 5), Share("b", ((1024, 4094),), 5), Share("a", ((4095, 4095),), 9))
    states = {0: SubscriptionState(5, 1, "g", 1, shares=parts), 1: SubscriptionState(0, 1, "g", 1)}
    attached = [ListenerRecord(address="h", port=1, token="t", member=name) for name in ("a", "c")]
    a, b, c = members_of(RECORD, attached, states)
    assert (a.member, a.listener, a.partitions, what(a)) == ("a", "h:1", (0,), "0: 25 %")
    assert (b.listener, what(b)) == (None, "0: 75 %"), "it is gone, and its part not given to others yet"
    assert (c.partitions, what(c)) == ((), "stands by")


def test_partitions_are_shown_in_short() -> None:
    assert (ranges((0, 1, 2, 5)), ranges(())) == ("0-2, 5", "stands by")
    assert what(Member("a", None, (3,))) == "3"
