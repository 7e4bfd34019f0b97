"""A host that is stopped while it holds a partition's lock: its successor is told who it is, and goes on with the rest.

It cannot be waited for without a bound, and it cannot be passed by: what it does next, once it goes on, changes files.
"""

from __future__ import annotations

import signal

import pytest

from delivery.errors import HootError, StorageUnavailable
from tests.chaos.stage import PUT_SECONDS, QUEUE, TAKEOVER_SECONDS, Host, Publishing, Stage, scanned
from tests.hosting import batch
from tests.integration.embedded import eventually

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

ROLL = bytes(70_000)
"""More than a segment: the next write closes it, and for that takes the partition's lock."""


def refusal(host: Host) -> HootError | None:
    """What this very host answers to a publish; None when it stored it."""
    with host.connect() as connection:
        try:
            connection.call("publish", QUEUE, 0, batch(b"asked"), None)
        except HootError as error:
            return error
    return None


def stopped_at_the_lock(stage: Stage) -> tuple[Host, Host]:
    """Two hosts; the first owns the partition, and is stopped the next time it takes the lock."""
    first = stage.host("segment_bytes=65536")
    stage.queue().put(ROLL)
    assert stage.owns(first)
    second = stage.host("segment_bytes=65536")
    first.set_trap("stop", "locked")
    return first, second


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
def test_a_host_that_is_stopped_at_the_lock_keeps_nothing_but_that_partition_and_only_while_it_is_stopped(
    stage: Stage, end: signal.Signals
) -> None:
    first, second = stopped_at_the_lock(stage)
    queue, other = stage.queue(), stage.client().create_queue("others", partitions=1)
    listener = stage.listen()
    with Publishing(queue) as publishing:
        eventually(lambda: not first.trap.exists(), "it is stopped while it holds the lock")
        said: list[HootError | None] = []

        def named() -> bool:
            said.append(refusal(second))
            return isinstance(said[-1], StorageUnavailable)

        eventually(named, "the successor says what keeps it", 4 * TAKEOVER_SECONDS)
        error = said[-1]
        assert error is not None
        assert error.retryable
        assert f"process {first.process.pid}, which is stopped, has held 00000/lock" in error.message
        other.put(b"meanwhile", timeout=PUT_SECONDS)
        first.process.signal(end)
        publishing.more(20, 2 * TAKEOVER_SECONDS)
    bodies = [message.body for message in scanned(queue) if message.body not in (ROLL, b"asked")]
    assert bodies == [b"%d" % number for number in range(len(bodies))], "each once, in order"
    assert len(bodies) == len(publishing.stored)
    listener.check([message.number for message in scanned(queue)])
