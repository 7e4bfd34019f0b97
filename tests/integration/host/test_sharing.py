"""Several hosts share the partitions: who gets what, who takes over, and what subscribers notice of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from delivery import connect
from delivery.errors import NotOwner
from delivery.metastore.catalog import Catalog
from delivery.model import QueueSettings
from subscriber import Event
from tests.integration.embedded import NEVER, eventually
from tests.integration.engine import by_partition, check_checkpoints, check_delivered
from tests.integration.several import Several, Steady, Watcher, several

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PARTITIONS, WINDOW = 12, 500
Story = Callable[[Several, Watcher], None]
Start = Callable[..., AbstractContextManager[Several]]


@pytest.fixture
def start(zookeeper_hosts: str, catalog: Catalog, tmp_path: Path) -> Start:
    """Starts that many hosts on the queue."""
    catalog.create_queue("orders", QueueSettings(partitions=PARTITIONS))
    options = ("--set", f"window_messages={WINDOW}")
    return lambda count, *more: several(zookeeper_hosts, catalog, tmp_path, count, *options, *more)


@pytest.fixture
def three(start: Start) -> Iterator[Several]:
    with start(3) as found:
        yield found


@pytest.fixture
def two(start: Start) -> Iterator[Several]:
    """Whose sessions last: nobody kills them."""
    with start(2, "--session-timeout", "15s") as found:
        yield found


def test_what_nobody_owns_is_spread_though_one_host_alone_is_asked(three: Several) -> None:
    told: dict[int, str | None] = {}
    with three.connect(0) as asked:
        for partition in range(PARTITIONS):
            try:
                asked.call("partitionInfo", "orders", partition)
            except NotOwner as error:
                told[partition] = error.address
    counts = three.counts("orders")
    assert sum(counts) == PARTITIONS
    assert len(told) == counts[1] + counts[2]
    for partition, address in told.items():
        owner = three.owner("orders", partition)
        assert address == three.hosts[owner].host_port
        with three.connect(owner) as owning:
            assert owning.call("partitionInfo", "orders", partition).partition == partition
    assert max(counts) - min(counts) <= 3


def test_all_hosts_agree_on_who_owns_what_whoever_is_asked_first(three: Several) -> None:
    connections = [three.connect(number) for number in range(3)]
    try:
        for partition in range(PARTITIONS):
            order = [(partition + turn) % 3 for turn in range(3)]
            named: set[int | None] = set()
            for number in order:
                try:
                    connections[number].call("partitionInfo", "orders", partition)
                    named.add(three.hosts[number].port)
                except NotOwner as error:
                    named.add(int((error.address or "").rpartition(":")[2]))
            assert named == {three.hosts[three.owner("orders", partition)].port}
    finally:
        for connection in connections:
            connection.close()


def told_while_delivering(three: Several, story: Story, duplicates: int) -> Watcher:
    """Publish and deliver all the time while the story happens: nothing is lost, the order holds."""
    with Watcher(three.zookeeper, "orders") as watcher:
        with Steady(three.zookeeper, "orders", PARTITIONS) as steady:
            eventually(lambda: len(watcher.ids()) == PARTITIONS, "all partitions deliver")
            told = len(watcher.events)
            story(three, watcher)
            NEVER.wait(0.3)
        published = by_partition(steady.stored)
        eventually(lambda: watcher.distinct() >= len(steady.stored), "everything at the callback", 60)
        repeated = check_delivered(published, watcher.ids())
        print(f"{repeated} of {len(steady.stored)} messages came twice")
        assert repeated <= duplicates
        assert {event.kind for event in watcher.events[told:]} <= {"moved"}, "nothing else was noticed"
    check_checkpoints(three.zookeeper, "orders", "watcher", published, watcher.ids())
    return watcher


def print_pauses(watcher: Watcher, partitions: Iterable[int], since: float, wait_seconds: float = 0.5) -> None:
    """How long each partition's deliveries stood still, once they go on."""
    NEVER.wait(wait_seconds)
    pauses = sorted(watcher.longest_pause(partition, since) for partition in partitions)
    print("pauses of deliveries:", [f"{pause:.3f}" for pause in pauses])


def test_a_killed_hosts_partitions_are_taken_over_by_all_others_at_once(three: Several) -> None:
    moved: list[int] = []

    def story(three: Several, watcher: Watcher) -> None:
        moved.extend(p for p in range(PARTITIONS) if three.owner("orders", p) == 1)
        assert moved
        three.processes[1].kill()
        since = time.monotonic()
        eventually(lambda: three.counts("orders")[1] == 0, "the others own what it had")
        print(f"{len(moved)} partitions have new owners after {time.monotonic() - since:.3f} s")
        print_pauses(watcher, moved, since, 1.0)

    told_while_delivering(three, story, duplicates=PARTITIONS * WINDOW)


def test_partitions_are_moved_while_they_are_in_use(three: Several) -> None:
    def story(three: Several, watcher: Watcher) -> None:
        for partition in range(3):
            owner = three.owner("orders", partition)
            target = three.hosts[(owner + 1) % 3]
            since = time.monotonic()
            with three.connect(owner) as asked:
                asked.call("movePartition", "orders", partition, target.host)
            took = time.monotonic() - since
            assert three.owner("orders", partition) == (owner + 1) % 3
            NEVER.wait(0.5)
            pause = watcher.longest_pause(partition, since)
            print(f"moved in {took:.3f} s, deliveries paused {pause:.3f} s")
            assert pause < 10, "some hundred milliseconds; nobody waits for a call to time out"

    told_while_delivering(three, story, duplicates=3 * WINDOW)


def test_subscribers_see_of_a_move_one_event_and_every_message(two: Several) -> None:
    moved: list[Event] = []

    def story(two: Several, watcher: Watcher) -> None:
        with connect(two.zookeeper) as client:
            before = client.placement.owner("orders", 5)
            target = two.hosts[1 - two.owner("orders", 5)]
            client.placement.move("orders", 5, target)
            after = client.placement.owner("orders", 5)
            assert after.host is not None
            assert after.host.host == target.host
            moved.append(Event("moved", "orders", partition=5, former_epoch=before.epoch, epoch=after.epoch))

    watcher = told_while_delivering(two, story, duplicates=WINDOW)
    assert [event for event in watcher.events if event.kind == "moved"] == moved


def test_what_was_handled_when_a_partition_moves_does_not_come_again_however_little_it_was(two: Several) -> None:
    put: list[int] = []

    def all_came() -> bool:
        return set(put) <= set(watcher.ids().get(5, ()))

    with Watcher(two.zookeeper, "orders") as watcher, connect(two.zookeeper) as client:
        queue = client.queue("orders")
        for _ in range(3):
            put += [queue.put(b"x", partition=5).id for _ in range(10)]
            eventually(all_came, "all of it is handled")
            client.placement.move("orders", 5, two.hosts[1 - two.owner("orders", 5)])
        put.append(queue.put(b"last", partition=5).id)
        eventually(all_came, "the last one is handled")
        assert watcher.ids()[5] == put


def test_a_drained_host_gives_everything_away_and_takes_nothing(three: Several) -> None:
    def story(three: Several, watcher: Watcher) -> None:
        since = time.monotonic()
        with three.connect(2) as drained:
            left = drained.call("drainHost", True)
            assert left == three.counts("orders")[2] or left > 0
            eventually(lambda: drained.call("drainHost", True) == 0, "it has nothing left")
        print(f"drained in {time.monotonic() - since:.3f} s")
        assert three.counts("orders")[2] == 0
        print_pauses(watcher, range(PARTITIONS), since)

    told_while_delivering(three, story, duplicates=PARTITIONS * WINDOW)


def test_a_host_that_is_stopped_gives_its_partitions_away_first(three: Several) -> None:
    def story(three: Several, watcher: Watcher) -> None:
        since = time.monotonic()
        three.processes[0].stop()
        print(f"stopped in {time.monotonic() - since:.3f} s")
        assert three.counts("orders")[0] == 0
        print_pauses(watcher, range(PARTITIONS), since)

    told_while_delivering(three, story, duplicates=PARTITIONS * WINDOW)


def test_a_client_that_knows_the_wrong_host_publishes_all_the_same(three: Several) -> None:
    with connect(three.zookeeper) as client:
        queue = client.queue("orders")
        first = queue.put(b"a", partition=0)
        owner = three.owner("orders", 0)
        with three.connect(owner) as asked:
            asked.call("movePartition", "orders", 0, three.hosts[(owner + 1) % 3].host)
        second = queue.put(b"b", partition=0)
        assert second.id > first.id
