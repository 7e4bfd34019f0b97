"""Whether what a subscription has acknowledged is written down: its owner knows it a moment earlier."""

from __future__ import annotations

from delivery import Client


def is_saved(client: Client, queue: str, subscription: str) -> bool:
    """Whether everything is acknowledged, and the checkpoints say so."""
    info = client.subscription_info(queue, subscription)
    positions = client.create_snapshot(queue, subscription, "now", dry_run=True).positions
    ends = {one.partition: one.end for one in info.partitions}
    return info.lag == 0 and all(one.position == ends[number] for number, one in positions.items())
