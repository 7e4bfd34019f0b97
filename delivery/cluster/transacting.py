"""The trio side of managing transactions: rounds in a thread, beginnings from memory, the end of what is too old."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from delivery import hop
from delivery.cluster.rounds import Rounds
from delivery.cluster.seat import Seat
from delivery.errors import HootError
from delivery.metastore.records import HostRecord
from delivery.transactions.asks import Answer, Asked, Expire

log = logging.getLogger(__name__)

EXPIRE_SECONDS: Final = 1.0
_RELEASE_SECONDS: Final = 2.0


class Transacting:
    """Transactions as this host manages them, or refuses to. For the trio thread; `run` looks for those that expire."""

    def __init__(
        self, seat: Seat, successor: Callable[[], HostRecord | None], take: Callable[[HostRecord], Awaitable[object]]
    ) -> None:  # fmt: skip
        """`successor` names the host that is to manage instead of this one, as long as this one is draining and there
        is another; `take` has it begin.
        """
        self._seat, self._successor, self._take = seat, successor, take
        self._rounds = Rounds[Asked, Answer](seat.work)

    @property
    def manages(self) -> bool:
        """Whether this host believes to manage transactions."""
        return self._seat.is_held

    def counts(self) -> tuple[int, int]:
        """See Seat."""
        return self._seat.counts()

    def oldest_invalid(self) -> int | None:
        """The first pointer of those that are invalid, if this host manages transactions and there are any."""
        return self._seat.oldest_invalid()

    async def answer(self, ask: Asked) -> Answer:
        """See Seat; what ends a transaction is kept when this returns. Many that ask at once share a round."""
        found = self._seat.at_once(ask)
        return await self._rounds.ask(ask) if found is None else found

    async def leave(self) -> None:
        """Hand the seat over if this host is draining. A failure is logged; then whoever is asked next takes the seat.

        Nothing that is under way is lost: who asks meanwhile waits, and is sent to the other host.
        """
        self._seat.successor = target = self._successor()
        if target is None or not self._seat.is_held:
            return
        begun = trio.current_time()
        try:
            await hop.run_sync(self._seat.release, target)
            await self._take(target)
        except HootError as error:
            log.warning("the host at %s did not begin to manage transactions: %s", target.host_port, error)
        else:
            took = (trio.current_time() - begun) * 1000
            log.info("transactions are managed by the host at %s now; handed over in %.0f ms", target.host_port, took)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after what expires and whether to leave, until cancelled; then give the seat up."""
        task_status.started()
        try:
            while True:
                await trio.sleep(EXPIRE_SECONDS)
                await self.leave()
                if self._seat.is_due():
                    with contextlib.suppress(HootError):  # whoever asks next does it
                        await self._rounds.ask(Expire())
        finally:
            with trio.move_on_after(_RELEASE_SECONDS, shield=True), contextlib.suppress(HootError):
                await hop.run_sync(self._seat.release)
