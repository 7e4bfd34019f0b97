"""When publishers have to wait for subscriptions: a decision by what was measured and what was taken since."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from delivery.cluster.backlog import Backlog, Floor, lowest
from delivery.errors import QueueFull
from delivery.model import QueueSettings
from delivery.storage.base import Amount, PartitionKey

KEY = PartitionKey("orders", "g1", 3)
SIZE = 10
"""Bytes of each message here."""


class Partition:
    """A partition whose batches are stored in order, one subscription, and what a host knows of both."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings, self.backlog = settings, Backlog()
        self.taken = self.stored = self.acknowledged = 0
        self.under_way: list[int] = []
        self.measuring: tuple[Amount, Floor, Amount] | None = None

    @property
    def waiting(self) -> int:
        """What is really not acknowledged, with what is being stored."""
        return self.taken - self.acknowledged

    def publish(self, messages: int) -> bool:
        """Whether it was taken."""
        try:
            self.backlog.check(KEY, self.settings)
        except QueueFull:
            return False
        self.backlog.take(messages, messages * SIZE)
        self.under_way.append(messages)
        self.taken += messages
        return True

    def store(self) -> None:
        if self.under_way:
            messages = self.under_way.pop(0)
            self.backlog.stored(messages, messages * SIZE)
            self.stored += messages

    def acknowledge(self, messages: int) -> None:
        self.acknowledged = min(self.acknowledged + messages, self.stored)

    def look(self) -> None:
        """Begin to measure: what is acknowledged, and what is stored, is as it is now."""
        between = self.stored - self.acknowledged
        self.measuring = (
            self.backlog.mark(), Floor(self.acknowledged, "billing"), Amount(between, between * SIZE)
        )  # fmt: skip

    def tell(self) -> None:
        if self.measuring is not None:
            self.backlog.measured(*self.measuring)
            self.measuring = None


@given(
    limit=st.integers(1, 60),
    steps=st.lists(
        st.tuples(st.sampled_from(["publish", "store", "acknowledge", "look", "tell"]), st.integers(1, 12)),
        max_size=120,
    ),
)  # fmt: skip
def test_whatever_happens_while_it_is_measured_nothing_is_forgotten_and_the_limit_holds_but_for_one_batch(
    limit: int, steps: list[tuple[str, int]]
) -> None:
    partition = Partition(QueueSettings(backlog_messages=limit))
    partition.look()
    partition.tell()
    for step, number in steps:
        before = partition.waiting
        if step == "publish":
            assert partition.publish(number) or partition.backlog.amount.messages >= limit
        elif step == "acknowledge":
            partition.acknowledge(number)
        else:
            getattr(partition, step)()
        known = partition.backlog.amount
        assert known.messages >= partition.waiting, "more may be believed to wait than does, and never less"
        assert known.bytes == known.messages * SIZE
        assert partition.waiting <= max(before, limit - 1 + number)
    while partition.under_way:
        partition.store()
    partition.look()
    partition.tell()
    assert partition.backlog.amount.messages == partition.waiting
    room = partition.waiting < limit
    assert partition.publish(1) == room


def test_before_it_was_measured_nobody_waits_and_it_is_asked_for() -> None:
    asked: list[None] = []
    backlog = Backlog()
    backlog.ask = lambda: asked.append(None)
    backlog.take(1000, 1000)
    backlog.check(KEY, QueueSettings(backlog_messages=1))
    assert len(asked) == 1
    assert not backlog.is_full(QueueSettings(backlog_messages=1))


@pytest.mark.parametrize(
    ("limits", "asks", "waits"),
    [
        ({"backlog_messages": 10}, [5, 6, 9], [10, 11]),
        ({"backlog_bytes": 2048}, [103, 204], [205]),
        ({"backlog_messages": 10, "backlog_bytes": 2048}, [5], [10, 205]),
        ({"backlog_messages": 10_000, "backlog_bytes": 2048}, [103], [205]),
    ],
)
def test_from_half_of_a_limit_on_it_is_measured_and_at_the_first_of_them_publishers_wait(
    limits: dict[str, int], asks: list[int], waits: list[int]
) -> None:
    settings = QueueSettings(**limits)  # type: ignore[arg-type]
    for messages in (0, 1, 4, *asks, *waits):
        backlog, asked = Backlog(), list[None]()
        backlog.ask = lambda asked=asked: asked.append(None)  # type: ignore[misc]
        backlog.measured(backlog.mark(), Floor(7, "billing"), Amount(messages, messages * SIZE))
        if messages in waits:
            with pytest.raises(
                QueueFull, match=r"orders/3 is full: subscription 'billing' has .*`hoot subscription info"
            ):
                backlog.check(KEY, settings)
        else:
            backlog.check(KEY, settings)
        assert bool(asked) == (messages in (*asks, *waits)), messages
        assert backlog.is_full(settings) == (messages in waits)


def test_where_no_subscription_counts_nobody_waits() -> None:
    backlog = Backlog()
    backlog.take(100, 1000)
    backlog.measured(backlog.mark(), None, Amount(0, 0))
    backlog.take(100, 1000)
    backlog.check(KEY, QueueSettings(backlog_messages=1))
    assert backlog.amount == Amount(0, 0)


def test_the_slowest_is_the_one_that_is_furthest_behind_and_of_several_the_first_by_name() -> None:
    assert lowest({}) is None
    assert lowest({"b": 5, "a": 9, "c": 5}) == Floor(5, "b")
