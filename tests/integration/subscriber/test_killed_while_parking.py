"""`order="key"` while hosts and subscribers are killed at random: messages fail, wait, come again and are given up."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from delivery import NewMessage, connect
from delivery.embedded import EmbeddedZooKeeper
from delivery.metastore.catalog import open_catalog
from delivery.metastore.zookeeper import ZooKeeperClient
from subscriber import RetryPolicy
from tests.integration.embedded import NEVER, eventually
from tests.integration.engine import RecordingSubscriber, hosted
from tests.integration.verdicts import judged, judged_any

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KEYS = 20
ROUNDS = 100
POLICY = RetryPolicy(order="key", first_seconds=0.1, factor=1, deliveries_max=6)


@pytest.mark.parametrize("seed", range(2), ids=lambda seed: f"seed-{seed}")
def test_every_message_is_handled_or_a_dead_letter_and_the_order_of_each_key_is_kept(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    with hosted(zookeeper, tmp_path, "--set", "window_messages=200") as running, connect(running.address) as client:
        queue = client.create_queue("orders")
        client.create_subscription("orders", "recorder", start="earliest")
        letters = client.dead_letters("orders", "recorder")
        stored = queue.put_many([NewMessage(b"x", key=b"%d" % (number % KEYS)) for number in range(ROUNDS * KEYS)])
        poison = int(stored[3 + 10 * KEYS].id)
        subscriber = RecordingSubscriber(running, "orders", tmp_path, retry=POLICY, fail_every=7, poison=poison)
        try:
            for _ in range(3):
                subscriber.start(pause_seconds=0.001)
                NEVER.wait(random.uniform(0.2, 1.0))
                running.host.kill()
                judged_any(client, "orders", "recorder", ("host_unreachable", "no_owner"))
                running.host.start()
                NEVER.wait(random.uniform(0.2, 1.0))
            subscriber.start()
            eventually(lambda: subscriber.distinct() == ROUNDS * KEYS - 1, "all but the poison", 60)
            assert {letter.told("id") for letter in letters.letters()} == {str(stored[3 + 10 * KEYS].id)}
            with ZooKeeperClient(running.address) as session:
                catalog = open_catalog(session)
                eventually(lambda: not catalog.states("orders", "recorder")[0].parked, "nothing is parked")
            judged(client, "orders", "recorder", "idle")
        finally:
            subscriber.kill()
    first = {number: at for at, number in reversed(list(enumerate(subscriber.ids()[0])))}
    for key in range(KEYS):
        ids = [int(one.id) for one in stored[key::KEYS] if int(one.id) != poison]
        assert ids == sorted(ids, key=first.__getitem__), f"key {key} came out of order"
