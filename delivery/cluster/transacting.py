"""The trio side of managing transactions: rounds in a thread, beginnings from memory, the end of what is too old."""

from __future__ import annotations

import contextlib
from typing import Final

import trio

from delivery import hop
from delivery.cluster.rounds import Rounds
from delivery.cluster.seat import Seat
from delivery.errors import HootError
from delivery.transactions.asks import Answer, Asked, Expire

EXPIRE_SECONDS: Final = 1.0
_RELEASE_SECONDS: Final = 2.0


class Transacting:
    """Transactions as this host manages them, or refuses to. For the trio thread; `run` looks for those that expire."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._rounds = Rounds[Asked, Answer](seat.work)

    @property
    def manages(self) -> bool:
        """Whether this host believes to manage transactions."""
        return self._seat.is_held

    def counts(self) -> tuple[int, int]:
        """See Seat."""
        return self._seat.counts()

    async def answer(self, ask: Asked) -> Answer:
        """See Seat; what ends a transaction is kept when this returns. Many that ask at once share a round."""
        found = self._seat.at_once(ask)
        return await self._rounds.ask(ask) if found is None else found

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after what expires until cancelled, and then give the seat up."""
        task_status.started()
        try:
            while True:
                await trio.sleep(EXPIRE_SECONDS)
                if self._seat.is_due():
                    with contextlib.suppress(HootError):  # whoever asks next does it
                        await self._rounds.ask(Expire())
        finally:
            with trio.move_on_after(_RELEASE_SECONDS, shield=True), contextlib.suppress(HootError):
                await hop.run_sync(self._seat.release)
