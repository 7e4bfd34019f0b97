"""How much of a partition its slowest subscription has before it, and whether publishers have to wait for that.

Decided batch by batch with numbers at hand: what was measured last, and what was taken since. So a limit is exceeded by
one batch at most, unless a subscription goes back or comes anew; and what was acknowledged since does not count yet,
so that whoever measures (`dispatch.backlogs`) is told as soon as half of a limit seems to be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from delivery.errors import QueueFull
from delivery.model import QueueSettings
from delivery.storage.base import NOTHING, Amount, PartitionKey

ASKED_AT: Final = 0.5
"""The part of a limit from which on it is measured anew: most of the time subscriptions are at the end."""


class Floor(msgspec.Struct, frozen=True):
    """Where the slowest subscription of a partition is."""

    position: int
    subscription: str


def lowest(positions: Mapping[str, int]) -> Floor | None:
    """The floor of subscriptions that are at these positions; of several at the same one the first by name."""
    slowest = min(positions, key=lambda name: (positions[name], name), default=None)
    return None if slowest is None else Floor(positions[slowest], slowest)


class Backlog:
    """That of one owned partition. For the trio thread only."""

    __slots__ = ("_measured", "_stored_bytes", "_stored_messages", "_taken_bytes", "_taken_messages", "ask", "floor",
                 "is_known")  # fmt: skip

    def __init__(self) -> None:
        self.ask: Callable[[], None] = lambda: None
        """Have it measured; called again and again while it is near its limit."""
        self.is_known = False
        """Whether it was measured. Before that nobody has to wait."""
        self.floor: Floor | None = None
        """As of the last measuring; None when no subscription counts."""
        self._measured = NOTHING
        """As of the last measuring, without what was stored before that under this owner."""
        self._taken_messages = self._taken_bytes = 0
        self._stored_messages = self._stored_bytes = 0

    @property
    def amount(self) -> Amount:
        """What is not acknowledged, with what is being stored; at most so much."""
        return NOTHING if self.floor is None else self._at_most

    def take(self, messages: int, size: int) -> None:
        """A batch is on its way into the store."""
        self._taken_messages += messages
        self._taken_bytes += size

    def stored(self, messages: int, size: int) -> None:
        """A batch is stored."""
        self._stored_messages += messages
        self._stored_bytes += size

    def mark(self) -> Amount:
        """All that was stored by now: to be noted before something is measured up to the watermark."""
        return Amount(self._stored_messages, self._stored_bytes)

    def measured(self, mark: Amount, floor: Floor | None, found: Amount) -> None:
        """There was so much above the floor when the mark was made."""
        self.floor, self.is_known = floor, True
        self._measured = found - mark

    def is_full(self, settings: QueueSettings) -> bool:
        """Whether publishers have to wait."""
        return self.floor is not None and self._part(settings) >= 1

    def check(self, key: PartitionKey, settings: QueueSettings) -> None:
        """Raises QueueFull when publishers have to wait."""
        part = self._part(settings)
        if part >= ASKED_AT or not self.is_known:
            self.ask()
        if part >= 1 and self.floor is not None:
            raise self._refusal(key, settings)

    @property
    def _at_most(self) -> Amount:
        """The amount; without a floor what was taken since it was measured, as somebody may have subscribed since."""
        return self._measured + Amount(self._taken_messages, self._taken_bytes)

    def _part(self, settings: QueueSettings) -> float:
        """How much of its limit, of that which is nearer, it has reached at most."""
        amount, most, size = self._at_most, settings.backlog_messages, settings.backlog_bytes
        return max(0 if most is None else amount.messages / most, 0 if size is None else amount.bytes / size)

    def _refusal(self, key: PartitionKey, settings: QueueSettings) -> QueueFull:
        amount, name = self.amount, "" if self.floor is None else self.floor.subscription
        limits = (
            ("messages", settings.backlog_messages), ("bytes", settings.backlog_bytes),
        )  # fmt: skip
        limit = " or ".join(f"{most:,} {what}" for what, most in limits if most is not None)
        return QueueFull(
            f"partition {key} is full: subscription {name!r} has {amount.messages:,} messages ({amount.bytes:,} bytes)"
            f" of it before it, and its limit is {limit}: `hoot subscription info {key.queue} {name}` tells why"
        )
