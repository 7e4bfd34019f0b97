"""Several subscriptions in one Subscriber, with a real host: what one of them does stalls no other."""

from __future__ import annotations

import threading

import pytest
import trio

from delivery import Client
from subscriber import ManualMessage, Message, Subscriber
from tests.integration.embedded import eventually
from tests.integration.engine import Engine
from tests.integration.verdicts import judged
from tests.saving import is_saved

pytestmark = pytest.mark.integration

SECONDS = 30.0
EACH = 30
QUEUES = ("sync", "async", "held", "manual", "quick")


def test_a_subscription_that_hangs_or_is_held_costs_the_others_nothing_and_the_verdict_says_which(
    running: Engine, client: Client
) -> None:
    queues = {name: client.create_queue(f"neighbour_{name}", partitions=1) for name in QUEUES}
    go, heard, kept = threading.Event(), list[bytes](), list[ManualMessage]()

    def hang(message: Message) -> None:
        go.wait(SECONDS)

    async def hang_as_well(message: Message) -> None:
        await trio.to_thread.run_sync(go.wait, SECONDS)

    subscriber = Subscriber("mail", zookeeper=running.address)
    subscriber.subscribe("neighbour_sync", listener=hang)
    subscriber.subscribe("neighbour_async", listener=hang_as_well)
    held = subscriber.subscribe("neighbour_held", listener=hang)
    held.stop_delivery()
    subscriber.subscribe("neighbour_manual", manual=True, listener=kept.append)
    subscriber.subscribe("neighbour_quick", listener=lambda message: heard.append(message.body))
    bodies = [b"%d" % number for number in range(EACH)]
    with subscriber:
        try:
            for body in bodies:
                for queue in queues.values():
                    queue.put(body)
            eventually(lambda: heard == bodies, "all that the quick one is to get", SECONDS)
            eventually(lambda: len(kept) == EACH, "and the one that acknowledges later", SECONDS)
            eventually(lambda: is_saved(client, "neighbour_quick", "mail"), "its checkpoint", SECONDS)
            for name, listener in (("sync", "hang"), ("async", "hang_as_well")):
                found = judged(client, f"neighbour_{name}", "mail", "handler_stuck")
                callback = found.observation.callback
                assert callback is not None
                assert callback.queue == f"neighbour_{name}"
                assert f"{listener} (test_neighbours.py" in callback.name
            judged(client, "neighbour_held", "mail", "paused")
            manual = judged(client, "neighbour_manual", "mail", "handler_stuck")
            assert "nobody has acknowledged it" in manual.verdict.text
        finally:
            go.set()
            held.start_delivery()
            for message in kept:
                message.ack()
        eventually(
            lambda: all(is_saved(client, queue.name, "mail") for queue in queues.values()), "all in the end", SECONDS
        )
