"""The case `restart`: how long a host needs from its start until it stores a message, with much or nothing on the disk.

A queue is filled, the host is killed, so that it closes nothing, and started again; the clock runs from the start of
its process to the answer to a message for the partition that has it all. What a host reads then must not depend on how
much lies there. Before, the same is measured with an empty queue. Bodies are written back to the disk first, or their
way there would be measured as well.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from delivery.bench.checking import BenchFailed
from delivery.bench.report import Result, result
from delivery.bench.stage import Plan
from delivery.client import Client, Queue, connect
from delivery.local import LocalEngine

_MIB: Final = 1 << 20
_READY_SECONDS: Final = 60.0


def restart(plan: Plan) -> Result:
    """See above."""
    with (
        tempfile.TemporaryDirectory(dir=plan.folder) as folder,
        LocalEngine(Path(folder)) as engine,
        connect(engine.address, deadline=_READY_SECONDS) as client,
    ):
        empty = _restarted(engine, _queue(client, "empty"), 0)
        queue = _queue(client, "full")
        _fill(plan, queue)
        held = queue.bounds(0).bytes // _MIB
        seconds = _restarted(engine, queue, plan.messages)
    found = result("restart", plan.size, plan.messages, seconds, "os")
    return msgspec.structs.replace(
        found, log_mib=held, ready_ms=round(seconds * 1e3, 1), empty_ready_ms=round(empty * 1e3, 1)
    )


def _queue(client: Client, name: str) -> Queue:
    client.create_queue(name, partitions=1, durability="os")
    queue = client.queue(name)
    queue.bounds(0)  # a partition that is looked at gets its owner
    return queue


def _fill(plan: Plan, queue: Queue) -> None:
    """Without keeping the receipts, which would be many; a publisher that is closed has heard of all."""
    body = random.randbytes(plan.size)
    with queue.publisher() as publisher:
        for _ in range(plan.messages):
            publisher.put(body)
    os.sync()


def _restarted(engine: LocalEngine, queue: Queue, messages: int) -> float:
    """Seconds. Raises BenchFailed when the partition has not kept all of its messages."""
    engine.host.kill()
    begun = time.monotonic()
    engine.host.start()
    last = queue.put(b"first", timeout=_READY_SECONDS).id
    seconds = time.monotonic() - begun
    held = queue.bounds(0)
    if (held.messages, held.last) != (messages + 1, last):
        raise BenchFailed(f"{messages + 1} messages were stored, and behind a restart there are {held.messages}")
    return seconds
