"""What of transactions is visible, as this host knows it for its deliveries: asked for only while one of them needs it.

A view that was taken may be used for as long as it decides: what it has as committed or invalid stays so. Of a
transaction that it has in progress the host that manages transactions is asked, and tells when any has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

import trio

from delivery.api.rest.ledgers import Ledgers
from delivery.cluster.partition import OwnedPartition
from delivery.dispatch.scanner import Source
from delivery.errors import HootError
from delivery.messaging.ledger import Ledger
from delivery.messaging.transactions import Snapshot, Verdict

WAIT_SECONDS: Final = 2.0
"""How long the manager is asked to wait for an end: one that it had no time to tell of is heard of then."""
BREATH_SECONDS: Final = 0.01
"""Between two ends that are told: where transactions end all the time, some of them are told together."""
PAUSE_SECONDS: Final = 0.5
"""Before the next try when nobody answered."""

Look = Callable[[Sequence[int], float], Awaitable[Snapshot]]
"""What is visible; see Transacting.changed."""


class Visibility:
    """For the trio thread (dispatch.committed.Transactions). Nothing is asked while nobody waits."""

    def __init__(self, look: Look, ledgers: Ledgers) -> None:
        self._look, self._ledgers = look, ledgers
        self._view: Snapshot | None = None
        self.trouble = ""
        """Why nobody tells what is visible at this moment; empty when somebody does."""
        self._taken = trio.Event()
        """That another view was; then another event takes its place."""
        self._asked = trio.Event()
        """That one is wanted at once."""
        self._unfinished: Counter[int] = Counter()
        """The transactions whose end is waited for, and by how many."""
        self._waiting = trio.Event()
        """That there are some."""

    async def run(self) -> None:
        """Ask for whoever waits, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_at_once)
            nursery.start_soon(self._hear_of_ends)

    async def view(self) -> Snapshot:
        """See dispatch.committed.Transactions."""
        while self._view is None:
            self._asked.set()
            await self._taken.wait()
        return self._view

    async def ended(self, pointer: int) -> None:
        """See dispatch.committed.Transactions."""
        self._unfinished[pointer] += 1
        self._asked.set()  # what is on its way may have been asked before the transaction ended
        self._waiting.set()
        try:
            while self._view is None or self._view.judge(pointer, rolled_back=False) is Verdict.STOP:
                await self._taken.wait()
        finally:
            self._unfinished[pointer] -= 1
            if not self._unfinished[pointer]:
                del self._unfinished[pointer]

    async def ledger(self, partition: Source) -> Ledger:
        """See dispatch.committed.Transactions."""
        return await self._ledgers.caught_up(cast("OwnedPartition", partition))

    async def _look_at_once(self) -> None:
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            if not await self._take((), 0):
                self._asked.set()

    async def _hear_of_ends(self) -> None:
        while True:
            await self._waiting.wait()
            if not self._unfinished:
                self._waiting = trio.Event()
            elif await self._take(sorted(self._unfinished), WAIT_SECONDS):
                await trio.sleep(BREATH_SECONDS)

    async def _take(self, unfinished: Sequence[int], seconds: float) -> bool:
        try:
            self._view, self.trouble = await self._look(unfinished, seconds), ""
        except HootError as error:
            self.trouble = error.message
            await trio.sleep(PAUSE_SECONDS)
            return False
        self._taken.set()
        self._taken = trio.Event()
        return True
