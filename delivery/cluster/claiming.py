"""Claims on their way: those of a moment go to ZooKeeper together, then each partition is opened in a thread."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
import trio

from delivery.cluster.claims import Answer, Claims, Granted, Wanted
from delivery.cluster.rounds import Rounds
from delivery.metastore.records import HostRecord
from delivery.model import QueueSettings
from delivery.storage.base import PartitionState

CLAIMS_AT_ONCE: Final = 1000
"""So many partitions at most are this host's by their records and not open yet: who asks for one of these waits."""


class Claimed(msgspec.Struct, frozen=True):
    """This host's: the record in ZooKeeper has this epoch and version, and the store was opened under it."""

    epoch: int
    version: int
    state: PartitionState


class Claiming:
    """For the trio thread."""

    def __init__(self, claims: Claims, limiter: trio.CapacityLimiter) -> None:
        """`limiter` is that of the threads in which partitions are opened."""
        self._claims, self._limiter = claims, limiter
        self._rounds = Rounds[Wanted, Answer](claims.claim)
        self._turns = trio.Semaphore(CLAIMS_AT_ONCE)

    async def claim(self, wanted: Wanted, settings: QueueSettings) -> Claimed | HostRecord | None:
        """Take a partition, or say who has it; None when nobody has it, and it is not wanted then.

        Once it is begun it goes on to its end, like a call in a thread: the partition may be this host's by then.
        Raises NotOwner when another host takes it at this moment, what ZooKeeper raises, and the errors of the store.
        """
        async with self._turns:
            granted = await self._rounds.ask(wanted)
            if not isinstance(granted, Granted):
                return granted
            work = partial(self._claims.open, wanted.key, settings, granted)
            with trio.CancelScope(shield=True):
                state = await trio.to_thread.run_sync(work, limiter=self._limiter)
            return Claimed(granted.epoch, granted.version, state)
