"""The members of a subscription, as `hoot subscription info` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delivery.cli.output import Column, table_lines

if TYPE_CHECKING:
    from delivery.client import SubscriptionInfo
    from delivery.client.groups import Member


def member_lines(found: SubscriptionInfo) -> list[str]:
    """A table of who is attached and what they get."""
    if not found.members:
        return [f"no member is attached: whoever subscribes as {found.subscription} is one"]
    columns = [Column("member"), Column("listener"), Column("partitions")]
    return table_lines(columns, [[one.member, one.listener or "gone", what(one)] for one in found.members])


def what(one: Member) -> str:
    """What a member gets: partitions, or its part of each, such as `0: 33 %, 1: 34 %`."""
    if not one.shares:
        return ranges(one.partitions)
    return ", ".join(f"{number}: {share:.0%}".replace("%", " %") for number, share in sorted(one.shares.items()))


def ranges(numbers: tuple[int, ...]) -> str:
    """Partitions in short, such as `0-3, 7`; `stands by` for none."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    shown = [f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts]
    return ", ".join(shown) or "stands by"
