"""The case `retry-storm`: messages that fail when they come first, among many that do not.

With the order of keys a message that fails holds up its own key and no other; there are as many keys as messages, up to
100,000. The rate is that of the messages that never fail, from the first `put` to the last callback of one. Nothing may
get lost, nothing that was handled may come again, and within a key the order must hold.
"""

from __future__ import annotations

import random
import time
from typing import Final

import msgspec

from delivery.bench.checking import BenchFailed, check_by_key, check_checkpoints, published
from delivery.bench.report import Result
from delivery.bench.stage import Setup, attached, queue_for, rated
from delivery.bench.tallies import FAILING
from delivery.client import Queue
from delivery.client.publisher import Receipt
from delivery.metastore.policy import RetryPolicy

_KEYS: Final = 100_000


def retry_storm(setup: Setup) -> Result:
    """See above."""
    policy = RetryPolicy(order="key", first_seconds=setup.pause, factor=1.0)
    with (
        queue_for(setup) as queue,
        attached(setup, queue, "latest", retry=policy, listener="storm", spread=True) as consumer,
    ):
        begun = time.monotonic_ns()
        receipts, failing = _publish(setup, queue)
        found = consumer.outcome()
        wanted = published(receipts)
        stored = [receipt.result() for receipt in receipts]
        keys = {(one.partition, int(one.id)): number % _KEYS for number, one in enumerate(stored)}
        check_by_key(wanted, consumer.delivered(), keys)
        check_checkpoints(setup.client, queue.name, consumer.task.name, wanted)
        if found.redelivered != failing:
            raise BenchFailed(f"{failing} messages failed once, and {found.redelivered} came again")
        told = rated("retry-storm", setup, setup.messages - failing, found.first_ns - begun)
        return msgspec.structs.replace(told, redelivered=failing, all_seconds=round((found.last_ns - begun) / 1e9, 4))


def _publish(setup: Setup, queue: Queue) -> tuple[list[Receipt], int]:
    """All messages; their receipts, and how many of them are to fail."""
    body, chance = random.randbytes(setup.size), random.Random(1)
    topics = [FAILING if chance.random() < setup.failing else "" for _ in range(setup.messages)]
    if all(topics):
        raise BenchFailed("no message is left that does not fail: use a smaller --failing")
    with queue.publisher() as publisher:
        put = publisher.put
        receipts = [
            put(body, key=b"%d" % (number % _KEYS), topic=topic) for number, topic in enumerate(topics)
        ]  # fmt: skip
    return receipts, sum(map(bool, topics))
