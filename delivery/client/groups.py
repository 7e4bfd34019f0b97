"""Who the members of a subscription are, as operators see them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from delivery.metastore.records import ListenerRecord, SubscriptionRecord


class Member(msgspec.Struct, frozen=True):
    """One of a group."""

    member: str
    """Its name."""
    listener: str | None
    """host:port; None for one that is gone, and whose partitions go to others at this moment."""
    partitions: tuple[int, ...]
    """Those that it gets; none for who stands by, and for who has just come."""


def members_of(record: SubscriptionRecord, attached: Iterable[ListenerRecord]) -> tuple[Member, ...]:
    """All members of a group, by name; none of an exclusive subscription."""
    if record.kind == "exclusive":
        return ()
    listeners = {one.member: one.host_port for one in attached if one.member}
    names = sorted(listeners.keys() | {name for name, those in record.holders.items() if those})
    return tuple(Member(name, listeners.get(name), record.holders.get(name, ())) for name in names)
