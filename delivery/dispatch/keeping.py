"""Progress in a partition that members share: positions are saved when they are due, who has what at once."""

from __future__ import annotations

import trio

from delivery.dispatch.checkpoints import CheckpointKeeper
from delivery.dispatch.progress import Progress
from delivery.metastore.managers.records import ParkedKey, Share

_PAUSE_SECONDS = 0.2
"""Before it is tried again, while ZooKeeper takes nothing."""


class KeptShares:
    """See crew.SharedLedger."""

    def __init__(self, progress: Progress, keeper: CheckpointKeeper) -> None:
        self._progress, self._keeper = progress, keeper

    def note_shares(self, position: int, shares: tuple[Share, ...]) -> None:
        """How far the members are."""
        self._progress.note_shares(position, shares)

    def note_parked(self, parked: tuple[ParkedKey, ...]) -> None:
        """What is parked in all slots."""
        self._progress.note_parked(parked)

    async def keep(self) -> tuple[Share, ...]:
        """Save all that was noted; gives the shares that are saved now. Never returns where nothing counts any more."""
        progress, saved_at = self._progress, self._progress.saved_at
        while not progress.over and progress.has_news and progress.saved_at == saved_at:
            await self._keeper.flush_partition(*progress.key.place)
            if progress.saved_at == saved_at:
                await trio.sleep(_PAUSE_SECONDS)
        if progress.over:
            await trio.sleep_forever()
        return progress.shares
