"""Who the members of a subscription are, as operators see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from delivery.metastore.managers.records import SubscriptionState
from delivery.metastore.records import ListenerRecord, SubscriptionRecord
from delivery.metastore.slots import SLOTS


class Member(msgspec.Struct, frozen=True):
    """One of a group."""

    member: str
    """Its name."""
    listener: str | None
    """host:port; None for one that is gone, and whose partitions go to others at this moment."""
    partitions: tuple[int, ...]
    """Those that it gets, or has a share of; none for who stands by, and for who has just come."""
    shares: dict[int, float] = {}
    """Where members share the partitions by key: which part of the keys of each it has, as it was saved last."""


def members_of(
    record: SubscriptionRecord, attached: Iterable[ListenerRecord], states: Mapping[int, SubscriptionState]
) -> tuple[Member, ...]:
    """All members of a group, by name; none of an exclusive subscription."""
    if record.kind == "exclusive":
        return ()
    listeners = {one.member: one.host_port for one in attached if one.member}
    if record.kind == "key_shared":
        shares = _shares(states)
        return tuple(
            Member(name, listeners.get(name), tuple(sorted(shares.get(name, ()))), shares.get(name, {}))
            for name in sorted(listeners.keys() | shares.keys())
        )
    names = sorted(listeners.keys() | {name for name, those in record.holders.items() if those})
    return tuple(Member(name, listeners.get(name), record.holders.get(name, ())) for name in names)


def _shares(states: Mapping[int, SubscriptionState]) -> dict[str, dict[int, float]]:
    """Per member the part of each partition that it has."""
    found: dict[str, dict[int, float]] = {}
    for number, state in states.items():
        for one in state.shares:
            if one.member:
                those = found.setdefault(one.member, {})
                slots = sum(last - first + 1 for first, last in one.slots)
                those[number] = those.get(number, 0.0) + slots / SLOTS
    return found
