"""The promises of the main path, while its processes are killed at random moments.

At least once, in order within a partition, duplicates at most the unacknowledged window per fault, no checkpoint beyond
what was handled. A failing seed is a test of its own: run it with `-k "seed-N"`.
"""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Self

import pytest

from delivery import PublishedMessage, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.errors import HootError
from delivery.local import LocalEngine
from tests.integration.embedded import NEVER, eventually
from tests.integration.engine import (
    Engine,
    RecordingSubscriber,
    by_partition,
    check_checkpoints,
    check_delivered,
    hosted,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WINDOW = 2_000
"""Messages that may be unacknowledged per partition in these tests; hosts are started with it."""
PARTITIONS = 3


class Publishing:
    """A thread that publishes until told to stop; what was acknowledged, in order."""

    def __init__(self, zookeeper: str, queue: str, seed: int) -> None:
        self.stored: list[PublishedMessage] = []
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(zookeeper, queue, Random(seed)))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "the publisher hangs"

    def _work(self, zookeeper: str, queue: str, random: Random) -> None:
        try:
            with connect(zookeeper) as client, client.queue(queue).publisher(linger_ms=1) as publisher:
                receipts = []
                while not self._stop.is_set():
                    for _ in range(random.randint(1, 200)):
                        key = b"k%d" % random.randint(0, 50)
                        receipts.append(publisher.put(random.randbytes(random.randint(0, 300)), key=key))
                    NEVER.wait(0.002)
                self.stored += [receipt.result(60) for receipt in receipts]
        except (HootError, OSError) as error:
            self.errors.append(error)


def killed_at_random(zookeeper: EmbeddedZooKeeper, folder: Path, seed: int, kills: int, *options: str) -> None:
    random = Random(seed)
    with hosted(zookeeper, folder, "--set", f"window_messages={WINDOW}", *options) as running:
        with connect(running.address) as client:
            client.create_queue("orders", partitions=PARTITIONS)
        subscriber = RecordingSubscriber(running, "orders", folder)
        subscriber.start()
        try:
            with Publishing(running.address, "orders", seed) as publishing:
                subscriber_kills = 0
                for _ in range(kills):
                    NEVER.wait(random.uniform(0.3, 1.5))
                    subscriber_kills += strike(running, subscriber, random)
                NEVER.wait(0.5)
            assert not publishing.errors, publishing.errors
            published = by_partition(publishing.stored)
            assert sum(map(len, published.values())) > 500
            check_end(running, subscriber, published, allowed=kills * PARTITIONS * WINDOW)
        finally:
            subscriber.kill()


def strike(running: Engine, subscriber: RecordingSubscriber, random: Random) -> bool:
    """Kill the host, mostly, or the subscriber, and start it again. True when it was the subscriber."""
    if random.random() < 0.7:
        running.host.kill()
        NEVER.wait(random.uniform(0, 0.3))
        running.host.start()
        return False
    subscriber.kill()
    NEVER.wait(random.uniform(0, 0.3))
    subscriber.start()
    return True


def check_end(running: Engine, subscriber: RecordingSubscriber, published: dict[int, list[int]], allowed: int) -> None:
    expected = sum(len(ids) for ids in published.values())
    eventually(lambda: subscriber.distinct() >= expected, f"{expected} messages at the callback", 60)
    check_checkpoints(running.address, "orders", "recorder", published, subscriber.ids())
    duplicates = check_delivered(published, subscriber.ids())
    assert duplicates <= allowed


@pytest.mark.parametrize("seed", range(5), ids=lambda seed: f"seed-{seed}")
def test_hosts_and_subscribers_killed_while_publishing_and_delivering_lose_nothing(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, seed: int
) -> None:
    killed_at_random(zookeeper, tmp_path, seed, kills=3)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 150), ids=lambda seed: f"seed-{seed}")
def test_the_same_with_many_seeds_and_more_kills(zookeeper: EmbeddedZooKeeper, tmp_path: Path, seed: int) -> None:
    killed_at_random(zookeeper, tmp_path, seed, kills=8)


def test_a_subscriber_killed_between_callback_and_acknowledgement_gets_that_message_again(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    with hosted(zookeeper, tmp_path) as running, connect(running.address) as client:
        queue = client.create_queue("orders", partitions=1)
        subscriber = RecordingSubscriber(running, "orders", tmp_path)
        subscriber.start(die_at=7)
        published = by_partition(queue.put_many([b"%d" % number for number in range(20)]))
        assert subscriber.process is not None
        subscriber.process.wait(20)
        handled = subscriber.ids()[0]
        assert handled == published[0][:7]
        check_checkpoints(running.address, "orders", "recorder", published, subscriber.ids())
        subscriber.start()
        try:
            eventually(lambda: subscriber.distinct() == 20, "all twenty")
        finally:
            subscriber.kill()
        delivered = subscriber.ids()[0]
        assert delivered.count(published[0][6]) == 2
        assert check_delivered(published, subscriber.ids()) <= 7


def test_a_host_that_was_killed_and_started_again_serves_before_its_old_session_ends(tmp_path: Path) -> None:
    with LocalEngine(tmp_path, "--set", "session_timeout_seconds=60") as engine, connect(engine.address) as client:
        client.create_queue("orders")
        queue = client.queue("orders")
        first = queue.put(b"1")
        engine.host.kill()
        engine.host.start()
        second = queue.put(b"2", timeout=40)
        assert len(client.hosts()) == 2, "the old one is registered still"
        assert (queue.bounds(0).messages, second.id > first.id) == (2, True)
