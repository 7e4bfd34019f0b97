"""What the supervisor has to start and stop: a plain comparison of what runs with what is attached."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from delivery.metastore.flow import Flow
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
    regulate: tuple[Attached, ...] = ()
    """Only whether and how fast to deliver has changed: what is out is not disturbed."""


def steps(running: Mapping[SubscriptionKey, Attached], attached: Mapping[str, Mapping[str, Attached]]) -> Steps:
    """How to come from `running` to `attached`, which speaks only of the queues it holds."""
    stop: list[SubscriptionKey] = []
    start: list[Attached] = []
    regulate: list[Attached] = []
    for (queue, name), now in running.items():
        found = attached[queue].get(name) if queue in attached else now
        if found is not None and found != now and _lasting(found) == _lasting(now):
            regulate.append(found)
        elif found != now:
            stop.append((queue, name))
    going_on = running.keys() - set(stop)
    for queue, subscriptions in attached.items():
        start += [found for name, found in subscriptions.items() if (queue, name) not in going_on]
    return Steps(tuple(stop), tuple(start), tuple(regulate))


def _lasting(attached: Attached) -> Attached:
    """Without what a running delivery can change."""
    lasting = msgspec.structs.replace(attached.subscription, flow=Flow(), pause=None)
    return msgspec.structs.replace(attached, subscription=lasting)
