"""Groups of real processes: members that come, go, are killed and are paused while messages flow."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from delivery import NewMessage, PublishedMessage, connect
from delivery.client import Limits
from delivery.client.groups import members_of
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import GroupMismatch, SubscriptionBusy
from delivery.metastore.catalog import Catalog, open_catalog
from delivery.metastore.groups import Kind
from delivery.metastore.records import SubscriptionRecord
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber import RetryPolicy, Subscriber
from tests.integration.embedded import NEVER, eventually
from tests.integration.engine import (
    Engine,
    RecordingSubscriber,
    by_partition,
    check_checkpoints,
    check_delivered,
    hosted,
)
from tests.integration.several import Steady

pytestmark = [pytest.mark.integration, pytest.mark.slow]

QUEUE, NAME, PARTITIONS, WINDOW = "orders", "recorder", 6, 300
SESSION_SECONDS, SESSION_LONG = 3.0, 15.0
SOON = 20.0
"""Seconds in which work moves after a session or two: long before the hosts look at everything anew."""


class Stage:
    """An engine, members that write down their callbacks in one file, and what ZooKeeper says of them."""

    def __init__(self, running: Engine, catalog: Catalog, folder: Path) -> None:
        self.running, self.catalog, self.folder = running, catalog, folder
        self.members: dict[str, RecordingSubscriber] = {}
        self.session_seconds = SESSION_SECONDS

    def join(self, member: str, kind: Kind = "shared") -> None:
        self.members[member] = made = RecordingSubscriber(
            self.running, QUEUE, self.folder, kind=kind, member=member, session_seconds=self.session_seconds
        )
        made.start()

    def holders(self) -> dict[str, tuple[int, ...]]:
        found = self.catalog.subscription(QUEUE, NAME)
        assert found is not None
        return found.holders

    def shares(self) -> dict[str, int]:
        return {name: len(numbers) for name, numbers in self.holders().items()}

    def check(self, stored: list[PublishedMessage], faults: int) -> None:
        """Everything came, first deliveries in the order of each partition, and at most a window twice per fault."""
        published, someone = by_partition(stored), next(iter(self.members.values()))
        assert len(stored) > 500
        eventually(lambda: someone.distinct() >= len(stored), f"{len(stored)} messages at callbacks", 60)
        check_checkpoints(self.running.address, QUEUE, NAME, published, someone.ids())
        duplicates = check_delivered(published, someone.ids())
        assert duplicates <= faults * WINDOW * PARTITIONS


@pytest.fixture
def stage(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        options = ("--session-timeout", f"{SESSION_LONG:g}s", "--set", f"window_messages={WINDOW}")
        running = stack.enter_context(hosted(zookeeper, tmp_path, *options))
        with connect(running.address) as client:
            client.create_queue(QUEUE, partitions=PARTITIONS)
            client.create_queue("one", partitions=1)
        session = stack.enter_context(ZooKeeperClient(running.address))
        found = Stage(running, open_catalog(session), tmp_path)
        try:
            yield found
        finally:
            for one in found.members.values():
                one.kill()


def test_members_that_come_and_go_share_the_partitions_and_nothing_comes_twice(stage: Stage) -> None:
    stage.session_seconds = SESSION_LONG  # none of them is killed, and none may be given up
    stage.join("a")
    with Steady(stage.running.address, QUEUE, PARTITIONS) as steady:
        eventually(lambda: stage.shares() == {"a": 6}, "the only one gets everything")
        stage.join("b")
        eventually(lambda: stage.shares() == {"a": 3, "b": 3}, "half of it goes to the second")
        before = stage.holders()
        stage.join("c")
        eventually(lambda: stage.shares() == {"a": 2, "b": 2, "c": 2}, "a third for the third")
        assert all(set(numbers) <= set(before[name]) for name, numbers in stage.holders().items() if name != "c")
        NEVER.wait(0.5)
        leaving = stage.members["b"].process
        assert leaving is not None
        leaving.send_signal(signal.SIGINT)
        eventually(lambda: stage.shares() == {"a": 3, "c": 3}, "the others have what one leaves")
        NEVER.wait(0.5)
    stage.check(steady.stored, faults=0)


def test_the_work_of_a_killed_and_of_a_paused_member_moves_within_their_sessions(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        stage.join(name)
    eventually(lambda: stage.shares() == {"a": 2, "b": 2, "c": 2}, "all three have a share")
    paused = stage.members["c"].process
    assert paused is not None
    with Steady(stage.running.address, QUEUE, PARTITIONS) as steady:
        NEVER.wait(1)
        stage.members["b"].kill()
        eventually(lambda: "b" not in stage.holders(), "its partitions move", SOON)
        os.kill(paused.pid, signal.SIGSTOP)
        try:
            eventually(lambda: stage.shares() == {"a": 6}, "the last one has everything", SOON)
            stage.join("d")
            eventually(lambda: stage.shares() == {"a": 3, "d": 3}, "one who joins gets its share")
        finally:
            os.kill(paused.pid, signal.SIGCONT)
        eventually(lambda: stage.shares() == {"a": 2, "c": 2, "d": 2}, "and the paused one comes back")
        NEVER.wait(1)
    stage.check(steady.stored, faults=2)


def test_who_stands_by_takes_over_everything_when_the_active_one_is_killed(stage: Stage) -> None:
    for name in ("b", "a", "c"):
        stage.join(name, "failover")
    eventually(lambda: stage.shares() == {"b": 6, "a": 0, "c": 0}, "who was first stays active")
    with Steady(stage.running.address, QUEUE, PARTITIONS) as steady:
        NEVER.wait(1)
        stage.members["b"].kill()
        eventually(lambda: stage.shares() == {"a": 6, "c": 0}, "the next one is active", SOON)
        NEVER.wait(1)
    stage.check(steady.stored, faults=1)


def test_members_with_other_options_and_of_another_kind_are_refused(stage: Stage) -> None:
    stage.join("a")
    eventually(lambda: stage.shares() == {"a": 6}, "it is alone")
    before = stage.catalog.subscription(QUEUE, NAME)

    def refused(kind: Kind | None, **options: object) -> str:
        other = Subscriber(NAME, stage.running.address, member="b")
        other.subscribe(QUEUE, kind=kind, listener=lambda _: None, **options)  # type: ignore[arg-type]
        with pytest.raises(GroupMismatch) as found:
            other.start()
        return found.value.message

    assert "another kind" in refused("exclusive")
    assert "another kind" in refused("failover")
    assert "another filter" in refused("shared", filter="topic = 'x'")
    assert "another topics" in refused(None, topics=["x"])
    assert "another retry" in refused("shared", retry=RetryPolicy(order="key"))
    assert "another partitions" in refused("shared", partitions=[1])
    namesake = Subscriber(NAME, stage.running.address, member="a")
    namesake.subscribe(QUEUE, listener=print)
    with pytest.raises(SubscriptionBusy, match="member 'a'"):
        namesake.start()
    assert stage.catalog.subscription(QUEUE, NAME) == before
    joining = Subscriber(NAME, stage.running.address, member="b")
    joining.subscribe(QUEUE, listener=print)
    with joining:
        eventually(lambda: stage.shares() == {"a": 3, "b": 3}, "whoever asks for nothing takes what there is")
        with pytest.raises(SubscriptionBusy):
            joining.unsubscribe(QUEUE)


def test_members_share_one_partition_by_key_and_none_waits_for_one_that_hangs(stage: Stage) -> None:
    keys = [b"key %d" % number for number in range(60)]
    rows = [(b"x", key) for _ in range(5) for key in keys]
    address, catalog = stage.running.address, stage.catalog

    def shares() -> list[tuple[str, int]]:
        states = catalog.states("one", NAME)
        return [(one.member, round(10 * one.shares.get(0, 0))) for one in members_of(record(), [], states)]

    def record() -> SubscriptionRecord:
        found = catalog.subscription("one", NAME)
        assert found is not None
        return found

    for name in ("a", "b"):
        stage.members[name] = made = RecordingSubscriber(
            stage.running, "one", stage.folder, kind="key_shared", member=name, session_seconds=SESSION_SECONDS,
            retry=RetryPolicy(order="key"), hang_at=3 if name == "b" else 0,
        )  # fmt: skip
        made.start()
    recorded = stage.members["a"]
    eventually(lambda: shares() == [("a", 5), ("b", 5)], "each has half of the keys")
    with connect(address) as client:
        stored = client.queue("one").put_many([NewMessage(body, key=key) for body, key in rows])
    eventually(lambda: recorded.distinct() > len(rows) / 3, "the other one handles its own")
    with connect(address) as client:
        look = partial(client.subscription_info, "one", NAME, Limits(stuck_seconds=0.5))
        eventually(lambda: look().partitions[0].observation.callback is not None, "it tells what hangs")
        judged = look().partitions[0].verdict
        assert (judged.name, judged.text[:23]) == ("handler_stuck", "member b: no answer for")
    assert recorded.distinct() < len(rows)
    stage.members["b"].kill()
    eventually(lambda: recorded.distinct() == len(rows), "what the killed one had comes to the other", 30)
    assert shares() == [("a", 10)]
    key_of = {int(one.id): key for one, (_, key) in zip(stored, rows, strict=True)}
    ids = recorded.ids()[0]
    for key in keys:
        handled = [number for number in dict.fromkeys(ids) if key_of[number] == key]
        assert handled == [number for number, other in key_of.items() if other == key]
    last = max(key_of)
    eventually(lambda: catalog.states("one", NAME)[0].position == last, "everything is acknowledged")
