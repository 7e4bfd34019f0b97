"""I10, memory, file handles and queues stay under a stated cap. Pure.

The caps are those of the hosts of a chaos run, whose settings (HOST_SETTINGS) are small, so that a leak shows.
Queues between threads, and the socket buffers of the kernel, cannot be seen from outside; what they hold is in the
memory that is.
"""

from __future__ import annotations

from typing import Final

from tests.chaos.cluster import HOST_SETTINGS, MIB
from tests.chaos.story import Gauge, Story

HOST_BYTES: Final = 128 * MIB
"""64 MiB for an idle host, 24 for the newest batches and for what is not stored yet, 14 for the windows and buffers of
six partitions of three subscriptions, and a quarter for what the allocator does not give back."""
CLIENT_BYTES: Final = 80 * MIB
"""Twice what an idle one takes."""
HANDLES: Final = 256

CAPS: Final[dict[str, dict[str, float]]] = {
    "host": {
        "memory_bytes": HOST_BYTES, "handles": HANDLES,
        "tail_cache_bytes": HOST_SETTINGS["tail_cache_bytes"],
        "publish_pending_bytes": HOST_SETTINGS["publish_bytes_max"],
    },
    "client": {"memory_bytes": CLIENT_BYTES, "handles": HANDLES},
}  # fmt: skip
"""By the kind of process. `unacknowledged_messages` of a host's subscription follows from the window, see `_cap`."""


def within_caps(story: Story) -> list[str]:
    """The highest of what was seen of each process is under its cap, and every kind of process was looked at."""
    highest: dict[tuple[str, str], Gauge] = {}
    for gauge in story.gauges:
        known = highest.setdefault((gauge.process, gauge.what), gauge)
        if gauge.value > known.value:
            highest[gauge.process, gauge.what] = gauge
    wrong = [
        f"{one.process}: {one.what} was {one.value:,.0f}; the cap is {_cap(one, story):,.0f}"
        for one in highest.values() if one.value > _cap(one, story)
    ]  # fmt: skip
    seen = {(kind_of(process), what) for process, what in highest}
    return wrong + [
        f"nobody looked at {what} of a {kind}"
        for kind, caps in CAPS.items() for what in caps if (kind, what) not in seen
    ]  # fmt: skip


def kind_of(process: str) -> str:
    """Hosts are called `host-N`."""
    return "host" if process.startswith("host-") else "client"


def _cap(gauge: Gauge, story: Story) -> float:
    if gauge.what == "unacknowledged_messages":
        # One push may always be out, however large it is: the window is overstepped by a batch at most.
        return story.partitions * (story.window + BATCH_MESSAGES)
    return CAPS[kind_of(gauge.process)][gauge.what]


BATCH_MESSAGES: Final = 64
"""The most that a publisher of a run puts in a batch."""
