"""The trio side of managing transactions: rounds in a thread, beginnings from memory, the end of what is too old."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import trio

from delivery import hop
from delivery.cluster.rounds import Rounds
from delivery.cluster.seat import Seat
from delivery.errors import HootError
from delivery.messaging.transactions import Snapshot, Verdict
from delivery.metastore.records import HostRecord
from delivery.transactions.asks import Answer, Ask, Asked, Begin, Expire, Look, MayWrite, Survey

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
        self._ended = trio.Event()
        """That some transaction has; then another event takes its place."""

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
        return await self._round(ask) if found is None else found

    async def changed(self, unfinished: Collection[int], seconds: float) -> Snapshot:
        """What is visible. While all of `unfinished` are in progress that waits for any end, or so many seconds."""
        ended = self._ended
        found = await self._look()
        if unfinished and all(found.judge(one, rolled_back=False) is Verdict.STOP for one in unfinished):
            with trio.move_on_after(seconds):
                await ended.wait()
            found = await self._look()
        return found

    async def _look(self) -> Snapshot:
        found = await self.answer(Look())
        assert isinstance(found, Snapshot)
        return found

    async def _round(self, ask: Asked) -> Answer:
        try:
            return await self._rounds.ask(ask)
        finally:
            if not isinstance(ask, Begin | Look | Ask | MayWrite | Survey):
                self._ended.set()
                self._ended = trio.Event()

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
                        await self._round(Expire())
        finally:
            with trio.move_on_after(_RELEASE_SECONDS, shield=True), contextlib.suppress(HootError):
                await hop.run_sync(self._seat.release)
