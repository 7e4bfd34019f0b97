"""Whether a transaction may still write to a topic or queue, as the service knows it that gave out its pointer."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from delivery import wall
from delivery.api.transactions import ASKED_MAX, UNKNOWN, TransactionCalls
from delivery.client.calls import Calls
from delivery.client.managing import NAME
from delivery.cluster.rounds import AT_ONCE, Rounds
from delivery.errors import HootError, InvalidRequest, NotOwner
from delivery.messaging.marks import pointers_in
from delivery.messaging.names import TRANSACTION_LIFE_MS
from delivery.publish.permits import Permit
from delivery.transactions.errors import NoSuchWriter, TransactionExpired, refusal
from delivery.transactions.pointers import began_ms, is_own

FOREIGN: Final = "foreign"
"""How a transaction of another service stands."""
SECONDS: Final = 10.0
"""How long the one who manages transactions is sought."""
TOGETHER_MAX: Final = 100
"""In one batch; Hoot's own publishers put one transaction's messages into it."""

assert AT_ONCE <= ASKED_MAX, "a round is one call"


class Writers:
    """For the trio thread. Transactions of another service than Hoot's may do what they want, unless that is forbidden:
    nobody knows them here.

    Where this host manages transactions it knows by itself. Otherwise the manager is asked each time, by one call for
    all who ask at the same moment. Nothing is remembered: what an aborted transaction publishes late would be seen as
    committed, so an answer of a moment ago is too old.
    """

    def __init__(self, here: TransactionCalls, elsewhere: Calls, *, foreign: bool = True) -> None:
        """`foreign`: whether there may be any of another service."""

        def ask(pointers: Sequence[int]) -> Sequence[str | HootError]:
            found: list[str] = elsewhere.call(NAME, 0, "mayWrite", list(pointers), timeout=SECONDS)
            return found

        self._here, self._elsewhere, self._foreign = here, Rounds[int, str](ask), foreign

    async def check(self, pointer: int, now_ms: int) -> None:
        """May it publish and store?

        Raises TransactionExpired, TransactionFinished, TransactionInvalid, NoSuchWriter.
        """
        if now_ms - began_ms(pointer) > TRANSACTION_LIFE_MS:
            raise TransactionExpired(
                f"transaction {pointer} began more than {TRANSACTION_LIFE_MS // 3_600_000} hours ago"
            )
        if (standing := await self._standing(pointer)) not in ("in_progress", FOREIGN):
            raise _refusal(pointer, standing)

    def permit(self, batch: bytes) -> Permit | None:
        """What tells whether all transactions may publish whose messages are in a batch; None where there are none.

        Raises CorruptRecord, and InvalidRequest for a batch of too many.
        """
        if not (pointers := pointers_in(batch)):
            return None
        if len(pointers) > TOGETHER_MAX:
            raise InvalidRequest(f"a batch holds messages of at most {TOGETHER_MAX} transactions")
        return partial(self._check_all, pointers)

    async def _check_all(self, pointers: Collection[int]) -> None:
        for pointer in pointers:
            await self.check(pointer, wall.ms())

    async def check_undo(self, pointer: int) -> None:
        """May what it published be taken back? Raises TransactionFinished for a committed one, NoSuchWriter."""
        if (standing := await self._standing(pointer)) in ("committed", UNKNOWN):
            raise _refusal(pointer, standing)

    async def _standing(self, pointer: int) -> str:
        if not is_own(pointer):
            return FOREIGN if self._foreign else UNKNOWN
        if self._here.manages:
            with contextlib.suppress(NotOwner):  # another host has taken over
                return str((await self._here.call("mayWrite", [pointer]))[0])
        return await self._elsewhere.ask(pointer)


def _refusal(pointer: int, standing: str) -> HootError:
    if standing == UNKNOWN:
        return NoSuchWriter(f"no transaction {pointer} is in progress; it may have ended long ago")
    return refusal(pointer, standing)
