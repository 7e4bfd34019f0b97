"""Replays: a subscription that delivers a stretch of its queue again, beside the one that it was made of.

It is the shadow of that one: it has a position, listeners and dead letters of its own, and ends where it was told to.
"""

from __future__ import annotations

from typing import Final

import msgspec

from delivery.errors import InvalidRequest
from delivery.ids import ID_MAX
from delivery.model import subscriptions_own

REPLAYS: Final = ".replay"
"""How the names of queues end that hold what was stored for one subscription alone."""

MAX: Final = 0.0
"""The speed of a replay that is held back by nothing but its listener."""
ORIGINAL: Final = 1.0
SLOWEST: Final = 0.001
FASTEST: Final = 1_000_000.0

Speed = float | str
""""max", "original", or how many times as fast as the messages were published."""


class Replay(msgspec.Struct, frozen=True):
    """What makes a subscription the replay of another."""

    of: str
    """The other subscription of the queue."""
    until: dict[int, int]
    """Per partition the id behind which nothing is delivered. In others nothing is delivered at all."""
    speed: float = MAX
    """How many times as fast as they were published messages are delivered at most; MAX for as fast as they can be."""

    def end(self, partition: int) -> int:
        """The id behind which nothing is delivered."""
        return self.until.get(partition, 0)


def check_speed(speed: object) -> float:
    """The speed in one of these words. Raises InvalidRequest."""
    if speed == "max":
        return MAX
    if speed == "original":
        return ORIGINAL
    if isinstance(speed, int | float) and not isinstance(speed, bool) and SLOWEST <= speed <= FASTEST:
        return float(speed)
    raise InvalidRequest(f'{str(speed)[:40]!r} is no speed: use "original", "max", or {SLOWEST:g} to {FASTEST:g} times')


def wrong_in_replay(replay: Replay) -> str:
    """What of a replay's record cannot be, empty when all can."""
    if replay.speed != MAX and not SLOWEST <= replay.speed <= FASTEST:
        return f"it is replayed at the speed {replay.speed}"
    fine = all(0 <= one <= ID_MAX for one in replay.until.values())
    return "" if fine else f"it is replayed until {str(replay.until)[:80]}"


def replay_queue(queue: str, subscription: str) -> str:
    """The queue of what is stored again for a subscription alone. Raises InvalidRequest where the names leave none."""
    return subscriptions_own(queue, subscription, REPLAYS, "a queue of its replays", "replay into a queue instead")
