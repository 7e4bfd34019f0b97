"""What the supervisor has to start and stop: a plain comparison of what runs with what is attached."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from delivery.metastore.flow import Flow
from delivery.metastore.groups import SPREAD
from delivery.metastore.records import ListenerRecord, SubscriptionRecord

SubscriptionKey = tuple[str, str]
"""Queue and subscription."""


class Attached(msgspec.Struct, frozen=True):
    """A subscription with live listeners. Two that are equal need nothing done."""

    generation: str
    """Of the queue, as it is now."""
    subscription: SubscriptionRecord
    listeners: tuple[ListenerRecord, ...]
    """One, or the members of a group."""

    @property
    def places(self) -> str:
        """Where they listen, in one word."""
        return ", ".join(one.host_port for one in self.listeners)

    def by_partition(self) -> dict[int, ListenerRecord]:
        """Who gets which partition; those that nobody has at this moment are left out, and those that all share."""
        subscription = self.subscription
        if subscription.kind == "exclusive":
            return dict.fromkeys(subscription.starts, self.listeners[0])
        members = {one.member: one for one in self.listeners}
        holders = subscription.holders.items() if subscription.kind in SPREAD else ()
        return {number: members[name] for name, numbers in holders if name in members for number in numbers}


class Steps(msgspec.Struct, frozen=True):
    """The difference. A changed registration is in the first two: its old delivery stops before the new one starts."""

    stop: tuple[SubscriptionKey, ...]
    start: tuple[Attached, ...]
    change: tuple[Attached, ...] = ()
    """Only the members of a group and what they hold have changed, or whether and how fast to deliver: theirs go on."""


def steps(running: Mapping[SubscriptionKey, Attached], attached: Mapping[str, Mapping[str, Attached]]) -> Steps:
    """How to come from `running` to `attached`, which speaks only of the queues it holds."""
    stop: list[SubscriptionKey] = []
    start: list[Attached] = []
    change: list[Attached] = []
    for key, now in running.items():
        if key[0] in attached and not _goes_on(now, attached[key[0]].get(key[1])):
            stop.append(key)
    for queue, subscriptions in attached.items():
        for name, found in subscriptions.items():
            before = running.get((queue, name))
            if before is None or not _goes_on(before, found):
                start.append(found)
            elif before != found:
                change.append(found)
    return Steps(tuple(stop), tuple(start), tuple(change))


def _goes_on(now: Attached, found: Attached | None) -> bool:
    if found is None or now == found:
        return found is not None
    return _lasting(now) == _lasting(found)


def _lasting(attached: Attached) -> Attached:
    """Without what a running delivery can change, its pace and the members of a group, and what is nothing to it."""
    subscription = msgspec.structs.replace(attached.subscription, holders={}, flow=Flow(), pause=None, replayed_ms=0)
    listeners = attached.listeners if subscription.kind == "exclusive" else ()
    return msgspec.structs.replace(attached, subscription=subscription, listeners=listeners)
