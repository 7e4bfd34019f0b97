"""What a host does about its partitions by itself: tell its load, release what is idle, shed what is too much."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec
import trio

from delivery.cluster.hosts.table import HostTable
from delivery.cluster.load import REFRESH_SECONDS, Load
from delivery.cluster.ownership import Ownership
from delivery.cluster.partition import OwnedPartition
from delivery.cluster.sharing.giving import Giving
from delivery.cluster.sharing.shedding import Held, shed
from delivery.errors import HootError

log = logging.getLogger(__name__)

_RELEASED_AT_ONCE: Final = 100
"""In one round, every REFRESH_SECONDS."""


class Limits(msgspec.Struct, frozen=True):
    """What an operator allows a host to own (fields of HostConfig)."""

    partitions_max: int
    retention_after_access_seconds: float
    rebalance_seconds: float


def surplus(owned: Iterable[OwnedPartition], limits: Limits, now: float) -> list[OwnedPartition]:
    """What to release: idle for too long, or the longest unused above the maximum. Those in use come last.

    Hedwig's `retention_secs_after_access` and `max_num_topics`.
    """
    order, seconds = list(owned), limits.retention_after_access_seconds
    too_many = max(0, len(order) - limits.partitions_max)
    if not too_many and not seconds:  # mostly: nothing to put in order every few seconds
        return []
    order.sort(key=lambda one: (one.use.active, one.use.used_at))
    found, rest = order[:too_many], order[too_many:]
    if seconds:
        found += [one for one in rest if not one.use.active and now - one.use.used_at > seconds]
    return found[:_RELEASED_AT_ONCE]


class Upkeep:
    """`run` owns the loop."""

    def __init__(
        self, ownership: Ownership, hosts: HostTable, giving: Giving, tell: Callable[[Load], Awaitable[None]],
        limits: Limits,
    ) -> None:  # fmt: skip
        """`tell` is `Membership.tell`."""
        self._ownership, self._hosts, self._giving = ownership, hosts, giving
        self._tell, self._limits = tell, limits
        self._shed_at = 0.0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after everything every two seconds until cancelled. What fails is tried again."""
        task_status.started()
        self._shed_at = self._next_shedding()
        while True:
            await trio.sleep(REFRESH_SECONDS)
            await self.tell()
            for owned in surplus(self._ownership, self._limits, trio.current_time()):
                await self._release(owned)
            if trio.current_time() >= self._shed_at:
                await self._shed()
                self._shed_at = self._next_shedding()

    async def tell(self) -> None:
        """Measure this host's load and put it into its record."""
        now, messages, size = trio.current_time(), 0.0, 0.0
        for owned in self._ownership:
            owned.traffic.follow(now)
            messages += owned.traffic.messages_per_second
            size += owned.traffic.bytes_per_second
        try:
            await self._tell(Load(len(self._ownership), messages, size, self._giving.draining))
        except HootError as error:
            log.debug("the load cannot be told: %s", error)

    def _next_shedding(self) -> float:
        """With jitter, so that not all hosts look at the same figures at the same moment."""
        seconds = self._limits.rebalance_seconds
        return trio.current_time() + seconds * random.uniform(0.5, 1.5) if seconds else float("inf")

    async def _release(self, owned: OwnedPartition) -> None:
        try:
            await self._giving.release(owned)
            log.info("%s: released, nobody used it", owned.key)
        except HootError as error:
            log.warning("%s cannot be released: %s", owned.key, error)

    async def _shed(self) -> None:
        await self._hosts.recent(REFRESH_SECONDS)
        owned = {(one.key.queue, one.key.partition): one for one in self._ownership}
        held = [
            Held(*place, one.traffic.messages_per_second, one.use.taken_at) for place, one in owned.items()
        ]  # fmt: skip
        moves = shed(self._hosts.me, self._hosts.all, held, trio.current_time(), random.Random())
        if moves and not self._giving.draining:
            log.info("this host has more than its share: %d of %d partitions go to others", len(moves), len(held))
            for move in moves:
                await self._giving.try_to_give(owned[move.held.queue, move.held.partition], move.target)
