"""Which invalid transactions can be forgotten: those of which no message is stored any more, wherever that was.

A message that nobody knows to be invalid is seen as committed, so what is judged is what the stores hold, and not ages:
the ttl of a topic may be raised, segments go as a whole, and partitions that nobody owns are not trimmed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delivery.ids import MessageId
from delivery.messaging.names import TRANSACTION_LIFE_MS

SKEW_MS: Final = 3_600_000
"""How far apart the clocks of hosts may be: one tells when a transaction began, another when its messages came."""


def forgettable_before(first_ids: Iterable[int], now: int) -> int:
    """The time, in ms, before which a transaction began if it can be forgotten now.

    `first_ids` has of each partition that may hold messages of transactions the lowest id that is stored, 0 where
    nothing is. Nothing is published in a transaction after its longest life.
    """
    oldest = min((MessageId(first).timestamp_ms for first in first_ids if first), default=now)
    return max(0, min(oldest, now) - TRANSACTION_LIFE_MS - SKEW_MS)
