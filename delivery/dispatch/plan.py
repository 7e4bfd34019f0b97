"""What the supervisor has to start and stop: a plain comparison of what runs with what is attached."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from delivery.metastore.records import ListenerRecord, SubscriptionRecord

SubscriptionKey = tuple[str, str]
"""Queue and subscription."""


class Attached(msgspec.Struct, frozen=True):
    """A subscription with a live listener. Two that are equal need nothing done."""

    generation: str
    """Of the queue, as it is now."""
    subscription: SubscriptionRecord
    listener: ListenerRecord


class Steps(msgspec.Struct, frozen=True):
    """The difference. A changed registration is in both: its old delivery stops before the new one starts."""

    stop: tuple[SubscriptionKey, ...]
    start: tuple[Attached, ...]


def steps(running: Mapping[SubscriptionKey, Attached], attached: Mapping[str, Mapping[str, Attached]]) -> Steps:
    """How to come from `running` to `attached`, which speaks only of the queues it holds."""
    stop = tuple(key for key, now in running.items() if key[0] in attached and attached[key[0]].get(key[1]) != now)
    start = tuple(
        found
        for queue, subscriptions in attached.items()
        for name, found in subscriptions.items()
        if running.get((queue, name)) != found
    )
    return Steps(stop, start)
