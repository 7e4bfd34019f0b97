"""A replay with real processes: its end outlives the host, and what is parked goes along with its promotion."""

from __future__ import annotations

from pathlib import Path

import pytest

from delivery import Client, MessageId, NewMessage
from subscriber import RetryPolicy
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, RecordingSubscriber, by_partition, check_delivered

pytestmark = pytest.mark.integration


def test_a_replay_ends_where_it_was_told_to_whatever_host_delivers_it(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    queue = client.create_queue("orders", partitions=2)
    client.create_subscription("orders", "real")
    stored = by_partition([one for _ in range(10) for one in queue.put_many([b"x"] * 100)])
    client.replay("orders", "real", "shadow", start="earliest", speed="max")
    later = by_partition(queue.put_many([b"x"] * 100))
    shadow = RecordingSubscriber(running, "orders", tmp_path, "shadow", pause_seconds=0.002)
    shadow.start()
    try:
        eventually(lambda: shadow.distinct() > 100, "some are delivered", 60)
        running.host.kill()
        running.host.start()
        eventually(lambda: client.subscription_info("orders", "shadow").finished, "it is finished", 60)
        more = by_partition(queue.put_many([b"x"] * 100))
        check_delivered(stored, shadow.ids())
        found = {(partition, number) for partition, ids in shadow.ids().items() for number in ids}
        assert not found & {(at, number) for new in (later, more) for at, ids in new.items() for number in ids}
    finally:
        shadow.kill()


def test_a_promoted_replay_hands_over_what_is_parked(running: Engine, client: Client, tmp_path: Path) -> None:
    queue = client.create_queue("refunds")
    real = RecordingSubscriber(
        running, "refunds", tmp_path, "real", retry=RetryPolicy(order="key", first_seconds=0.5, factor=1)
    )
    ids = [int(one.id) for one in queue.put_many([NewMessage(b"x", key=b"%d" % (one % 3)) for one in range(12)])]
    real.start()
    eventually(lambda: real.distinct() == 12, "all are handled", 60)
    real.kill()
    client.replay("refunds", "real", "shadow", start="earliest", end=MessageId(ids[9]), speed="max")
    shadow = RecordingSubscriber(running, "refunds", tmp_path, "shadow")
    try:
        shadow.start(poison=ids[4])
        waiting = tuple(ids[4:9:3])
        eventually(lambda: [one.ids for _, one in client.parked("refunds", "shadow")] == [waiting], "parked", 60)
        eventually(
            lambda: client.subscription_info("refunds", "shadow").partitions[0].position == ids[9] - 1, "end", 60
        )
        assert not client.subscription_info("refunds", "shadow").finished, "what is parked is left"
        shadow.kill()
        name, [move] = client.promote("refunds", "shadow", force=True)
        assert (name, move.after, move.messages, move.parked) == ("real", ids[9] - 1, 3, len(waiting))
        assert client.subscriptions("refunds") == ["real"]
        real.start()
        eventually(lambda: real.count() == 12 + 3 + len(waiting), "what is left comes", 60)
        assert sorted(real.ids()[0][12:]) == sorted([*waiting, *ids[9:]])
    finally:
        shadow.kill()
        real.kill()
