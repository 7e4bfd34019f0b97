"""The case `slow-neighbour`: what a slow subscription costs a fast one of the same queue, and the host.

The fast one is measured alone, then again with the slow one attached, which has all that was published before still to
come. So its window and its buffers are full all the time, and what it is given comes from the store.
"""

from __future__ import annotations

import time

import msgspec

from delivery.bench.checking import BenchFailed, check_delivered, published
from delivery.bench.gauging import Cost, resident_mib
from delivery.bench.report import Result, percentile_ms, with_latencies
from delivery.bench.stage import Setup, attached, check, publish_paced, queue_for, rated
from delivery.client.publisher import Receipt


def slow_neighbour(setup: Setup) -> Result:
    """See above."""
    with (
        queue_for(setup) as queue,
        attached(setup, queue, "latest", name="fast", expected=setup.messages * 2, listener="latency") as fast,
    ):
        begun = time.monotonic_ns()
        receipts = publish_paced(setup, queue)
        alone_mib = resident_mib(setup.host_pid)
        cost = Cost(setup.host_pid)
        with attached(
            setup, queue, "earliest", name="slow", expected=setup.messages * 2 + 1, listener="slow", slow=setup.slow
        ) as slow:
            receipts += publish_paced(setup, queue)
            found = fast.outcome()
            check(setup, queue, receipts, fast)
            slow.stop()
            _check_slow(receipts, slow.delivered())
        told = rated("slow-neighbour", setup, setup.messages * 2, found.last_ns - begun)
        return _with_both(told, found.latencies_ns, setup.messages, alone_mib, cost.peak_mib())


def _with_both(told: Result, latencies: list[int], alone: int, alone_mib: int | None, peak_mib: int | None) -> Result:
    """Of each half the first tenth is not counted."""
    before = percentile_ms(sorted(latencies[alone // 10 : alone]), 0.99)
    told = with_latencies(told, latencies[alone + alone // 10 :])
    assert told.p99_ms is not None
    return msgspec.structs.replace(
        told, alone_p99_ms=before, ratio_to_alone=round(told.p99_ms / before, 3), alone_mib=alone_mib, host_mib=peak_mib
    )


def _check_slow(receipts: list[Receipt], got: dict[int, list[int]]) -> None:
    """It got something, and that is what is stored, from the beginning on and without a gap."""
    wanted = published(receipts)
    if not any(got.values()):
        raise BenchFailed("the slow subscription got nothing: use a smaller --slow or more --messages")
    check_delivered({partition: wanted[partition][: len(ids)] for partition, ids in got.items()}, got)
