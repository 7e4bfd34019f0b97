"""Forgetting, on the host that manages transactions, the invalid ones of which no message is stored any more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from delivery import hop, wall
from delivery.cluster.transacting import Transacting
from delivery.errors import HootError
from delivery.transactions.asks import Prune
from delivery.transactions.forgetting import forgettable_before
from delivery.transactions.pointers import began_ms

FORGET_SECONDS: Final = 600.0
"""Between two looks."""

log = logging.getLogger(__name__)


class Forgetter:
    """For the trio thread. `run` owns the loop."""

    def __init__(
        self, transacting: Transacting, before_ms: Callable[[int], int], now_ms: Callable[[], int] = wall.ms
    ) -> None:  # fmt: skip
        """`before_ms` is that of client.forgetting, which blocks."""
        self._transacting, self._before_ms, self._now_ms = transacting, before_ms, now_ms

    async def run(self) -> None:
        """Look now and then, until cancelled. What fails is tried again."""
        while True:
            await trio.sleep(FORGET_SECONDS)
            try:
                await self.look()
            except HootError as error:
                log.warning("which invalid transactions can be forgotten cannot be told: %s", error)

    async def look(self) -> None:
        """Once. Nobody is asked as long as none is old enough. Raises what keeps it from being found out."""
        oldest = self._transacting.oldest_invalid()
        if oldest is None or began_ms(oldest) >= forgettable_before((), self._now_ms()):
            return
        before_ms = await hop.run_sync(self._before_ms, began_ms(oldest))
        if before_ms and (count := await self._transacting.answer(Prune(before_ms))):
            log.info("%s invalid transactions are forgotten: no message of them is stored any more", count)
