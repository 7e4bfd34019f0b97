"""Asking a real engine why a subscription is silent."""

from __future__ import annotations

from collections.abc import Collection

from delivery import Client
from delivery.client import Limits, SubscribedPartition
from delivery.dispatch.verdict import Name
from tests.integration.embedded import eventually

SOON = Limits(stuck_seconds=1, slow_seconds=1, behind_seconds=1, quiet_seconds=1, connect_seconds=1)
"""No test waits half a minute to see that something is stuck."""


def judged(client: Client, queue: str, name: str, verdict: Name, limits: Limits = SOON) -> SubscribedPartition:
    """Wait until the worst partition of a subscription has that verdict."""
    return judged_any(client, queue, name, (verdict,), limits)


def judged_any(
    client: Client, queue: str, name: str, verdicts: Collection[Name], limits: Limits = SOON
) -> SubscribedPartition:  # fmt: skip
    """Wait until the worst partition of a subscription has one of these: which one may be up to moments."""
    found: list[SubscribedPartition] = []

    def look() -> bool:
        worst = client.subscription_info(queue, name, limits).worst
        assert worst is not None
        found.append(worst)
        return worst.verdict.name in verdicts

    try:
        eventually(look, " or ".join(verdicts), 60)
    except BaseException:
        print(f"the verdict is {found[-1:]}")
        raise
    return found[-1]
