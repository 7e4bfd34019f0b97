"""Whether a transaction may still write to a topic, as the service knows it that gave out its pointer."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from delivery.api.rest.errors import NoSuchWriter
from delivery.api.transactions import ASKED_MAX, UNKNOWN, TransactionCalls
from delivery.client.calls import Calls
from delivery.client.managing import NAME
from delivery.cluster.rounds import AT_ONCE, Rounds
from delivery.errors import HootError, NotOwner
from delivery.transactions.errors import refusal
from delivery.transactions.pointers import is_own

FOREIGN: Final = "foreign"
"""How a transaction of another service stands."""
SECONDS: Final = 10.0
"""How long the one who manages transactions is sought."""

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

    async def check(self, pointer: int) -> None:
        """May it publish and store? Raises TransactionFinished, TransactionInvalid, NoSuchWriter."""
        if (standing := await self._standing(pointer)) not in ("in_progress", FOREIGN):
            raise _refusal(pointer, standing)

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
