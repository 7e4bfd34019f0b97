"""Going back to a snapshot with `order="key"`: what was parked then is parked again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery import NewMessage, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber import RetryPolicy
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, RecordingSubscriber, hosted

pytestmark = pytest.mark.integration


@pytest.fixture
def running(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Engine]:
    with hosted(zookeeper, tmp_path) as started:
        yield started


def position(running: Engine) -> int:
    with ZooKeeperClient(running.address) as zookeeper:
        return open_catalog(zookeeper).states("orders", "recorder")[0].position


def test_a_key_that_was_parked_comes_again_from_where_it_was_parked_and_no_other_key_does(
    running: Engine, tmp_path: Path
) -> None:
    with connect(running.address) as client:
        client.create_queue("orders")
        messages = [NewMessage(b"x", key=b"%d" % (number % 3)) for number in range(12)]
        ids = [int(one.id) for one in client.queue("orders").put_many(messages)]
        waiting = tuple(ids[4::3])
        subscriber = RecordingSubscriber(
            running, "orders", tmp_path, retry=RetryPolicy(order="key", first_seconds=0.5, factor=1)
        )
        try:
            subscriber.start(poison=ids[4])
            eventually(lambda: subscriber.distinct() == 12 - len(waiting), "all but what is parked", 60)
            eventually(lambda: [one.ids for _, one in client.parked("orders", "recorder")] == [waiting], "parked")
            eventually(lambda: position(running) == ids[-1], "the others are acknowledged, and that is saved")
            [saved] = client.create_snapshot("orders", "recorder", "poisoned").positions.values()
            assert (saved.position, [one.ids for one in saved.parked]) == (ids[-1], [waiting])

            subscriber.start()  # a mended one
            eventually(lambda: subscriber.distinct() == 12, "all", 60)
            eventually(lambda: client.parked("orders", "recorder") == [], "nothing is parked")
            [dry] = client.restore_snapshot("orders", "recorder", "poisoned", dry_run=True)
            assert (dry.messages, dry.parked) == (0, len(waiting))
            client.restore_snapshot("orders", "recorder", "poisoned", force=True)
            eventually(lambda: subscriber.count() == 12 + len(waiting), "what was parked comes again", 60)
            eventually(lambda: client.parked("orders", "recorder") == [], "nothing is parked")
            assert subscriber.ids()[0][-len(waiting) :] == list(waiting)
        finally:
            subscriber.kill()
