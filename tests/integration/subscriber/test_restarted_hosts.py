"""What was handled when a host stops cleanly does not come again, however little it was (Hedwig's hub shutdown)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from delivery import connect
from delivery.embedded import EmbeddedZooKeeper
from subscriber import Message, Subscriber
from tests.integration.embedded import eventually
from tests.integration.engine import hosted

pytestmark = pytest.mark.integration


def _has(bodies: list[bytes], count: int) -> bool:
    return len(bodies) >= count


@pytest.mark.parametrize("stays", [True, False], ids=["attached", "left before"])
def test_after_a_clean_stop_of_the_host_only_what_is_new_comes(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, stays: bool
) -> None:
    with hosted(zookeeper, tmp_path) as running, connect(running.address) as client:
        queue = client.create_queue("orders", partitions=2)
        bodies: list[bytes] = []

        def listener(message: Message) -> None:
            bodies.append(message.body)

        def subscriber() -> Subscriber:
            made = Subscriber("mail", zookeeper=running.address)
            made.subscribe("orders", start="earliest", listener=listener)
            return made

        first = subscriber()
        first.start()
        for begin in (0, 10, 20):
            for number in range(begin, begin + 10):
                queue.put(b"%d" % number, partition=number % 2)
            eventually(partial(_has, bodies, begin + 10), "what is new")
            if not stays:
                first.stop()
            running.host.stop()
            running.host.start()
            if not stays:
                first = subscriber()
                first.start()
        queue.put(b"last")
        eventually(lambda: b"last" in bodies, "the last one")
        first.stop()
    assert sorted(bodies) == sorted([*(b"%d" % number for number in range(30)), b"last"])
