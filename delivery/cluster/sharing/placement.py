"""Which host a partition belongs on. Plain functions of what the hosts say of themselves (seed 002, topic management).

Hedwig's hubs chose the least loaded one, ties at random, for every topic that nobody owned. Here the host that is asked
keeps the partition unless another has clearly less: a redirect costs the client a round trip and both hosts one more,
and a difference of one or two partitions is gone with the next few that are placed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from delivery.metastore.records import HostRecord

NEAR: Final = 1
"""Partitions that one host may have more than another without anything being done about it."""
NEAR_PART: Final = 0.10
"""The same, as a part of what it has."""


def choose(hosts: Sequence[HostRecord], pending: Mapping[str, int], random: Random) -> HostRecord | None:
    """The least loaded of the hosts that are not draining; ties are settled by traffic, then at random.

    `pending` counts, per host, partitions that were given to it since it last told of its load. Hosts whose numbers of
    partitions are near one another count as tied. None when no host may take anything.
    """
    able = [host for host in hosts if not host.draining]
    if not able:
        return None
    counts = {host.host: host.partitions + pending.get(host.host, 0) for host in able}
    least = min(counts.values())
    tied = [host for host in able if counts[host.host] == least]
    quiet = min(host.messages_per_second for host in tied)
    return random.choice([host for host in tied if host.messages_per_second <= 2 * quiet + 100])


def has_clearly_less(theirs: int, mine: int) -> bool:
    """Whether a host with `theirs` partitions should get one that was asked of a host with `mine`."""
    return mine - theirs > max(NEAR, math.floor(mine * NEAR_PART))


def before(queue: str, partition: int, host: str, hosts: Sequence[HostRecord]) -> list[str]:
    """The hosts that come before `host` in taking over this partition, those left out that are draining.

    By a hash of partition and host (rendezvous hashing): all hosts agree without a word, a dead host's partitions fall
    to all survivors alike, and a host that comes or goes changes the place of nothing else.
    """
    mine = (_weight(queue, partition, host), host)
    return [
        other.host
        for other in hosts
        if not other.draining and other.host != host and (_weight(queue, partition, other.host), other.host) > mine
    ]


def _weight(queue: str, partition: int, host: str) -> bytes:
    return hashlib.blake2b(f"{host}/{queue}/{partition}".encode(), digest_size=8).digest()
