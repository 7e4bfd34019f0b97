"""What a host gives away because it has more than its share. Plain functions; the cases of Hedwig's load shedder.

Nothing flaps: a host sheds only above a tenth more than the average, down to the average and not below; what it took a
moment ago stays; and by traffic it gives away only what leaves the receiver with less than itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from delivery.cluster.sharing.placement import choose
from delivery.metastore.records import HostRecord

TOLERANCE: Final = 0.10
"""Above the average by this part a host sheds (Hedwig's default)."""
AT_ONCE: Final = 10
"""Partitions that are shed in one round; each costs its subscribers a pause of some tens of milliseconds."""
SETTLE_SECONDS: Final = 60.0
"""A partition that was taken so recently stays where it is."""
RATE_TOLERANCE: Final = 0.25
RATE_FLOOR: Final = 1000.0
"""Messages a second that a host must be above the average, beside the part: small traffic may lie anywhere."""


class Held(msgspec.Struct, frozen=True):
    """One partition of the host that may shed."""

    queue: str
    partition: int
    messages_per_second: float
    taken_at: float


class Move(msgspec.Struct, frozen=True):
    """One partition to give away, and to whom."""

    held: Held
    target: HostRecord


def keep_count(own: int, counts: Sequence[int], tolerance: float = TOLERANCE, at_once: int = AT_ONCE) -> int:
    """How many of `own` partitions a host keeps; `counts` are those of all hosts, its own included.

    All of them up to ceil(average × (1 + tolerance)); else down to the average, rounded up, at least one, and never
    more than `at_once` fewer.
    """
    if own <= _most(counts, tolerance):
        return own
    return max(1, math.ceil(sum(counts) / len(counts)), own - at_once)


def _most(counts: Sequence[int], tolerance: float = TOLERANCE) -> int:
    """How many a host may have without shedding."""
    return math.ceil(sum(counts) / len(counts) * (1 + tolerance))


def shed(me: str, hosts: Sequence[HostRecord], held: Sequence[Held], now: float, random: Random) -> list[Move]:
    """What the host `me` gives away now: by number of partitions first, else by messages a second; mostly nothing.

    `hosts` are the live ones, `me` included; a draining one neither counts, nor gets anything, nor sheds this way.
    """
    able = [host for host in hosts if not host.draining]
    others = [host for host in able if host.host != me]
    if not others or len(others) == len(able):
        return []
    settled = [one for one in held if now - one.taken_at >= SETTLE_SECONDS]
    counts = [len(held), *(host.partitions for host in others)]
    surplus = len(held) - keep_count(len(held), counts)
    if surplus > 0:
        return _by_count(others, random.sample(settled, min(surplus, len(settled))), random)
    room = {host.host: _most(counts) - host.partitions for host in others}
    return _by_traffic(others, settled, sum(one.messages_per_second for one in held), room)


def _by_count(others: Sequence[HostRecord], chosen: Sequence[Held], random: Random) -> list[Move]:
    given: dict[str, int] = {}
    moves = []
    for one in chosen:
        target = choose(others, given, random)
        assert target is not None, "draining hosts were left out before"
        given[target.host] = given.get(target.host, 0) + 1
        moves.append(Move(one, target))
    return moves


def _by_traffic(
    others: Sequence[HostRecord], settled: Sequence[Held], own: float, room: dict[str, int]
) -> list[Move]:  # fmt: skip
    """`room` is how many more each may have without shedding by number: the two must not work against each other."""
    rates = {host.host: host.messages_per_second for host in others}
    average = (own + sum(rates.values())) / (len(others) + 1)
    moves: list[Move] = []
    for one in sorted(settled, key=lambda one: -one.messages_per_second):
        rate = one.messages_per_second
        able = [host for host in others if room[host.host] > 0]
        if not able or rate < RATE_FLOOR / 10 or len(moves) == AT_ONCE:
            break
        if own <= average * (1 + RATE_TOLERANCE) or own - average <= RATE_FLOOR:
            break
        quietest = min(able, key=lambda host: rates[host.host])
        # What would only carry the heat from one host to another stays: the busiest partition cannot be split.
        if own - rate >= max(average, rates[quietest.host] + rate):
            moves.append(Move(one, quietest))
            own -= rate
            rates[quietest.host] += rate
            room[quietest.host] -= 1
    return moves
