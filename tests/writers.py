"""Which transactions may write, as a test says it; asked as a host asks that manages transactions itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from delivery.api.transactions import UNKNOWN
from delivery.api.writers import Writers
from delivery.errors import HootError
from delivery.transactions.errors import NoSuchWriter, TransactionFinished, TransactionInvalid

STANDINGS: Final[tuple[tuple[str | None, type[HootError] | None, type[HootError] | None], ...]] = (
    ("in_progress", None, None),
    ("committed", TransactionFinished, TransactionFinished),
    ("aborted", TransactionFinished, None),
    ("invalid", TransactionInvalid, None),
    (None, NoSuchWriter, NoSuchWriter),
)
"""How a transaction may stand, what its writing is refused with then, and what taking it back."""


class Manager:
    """In the place of a host's TransactionCalls."""

    manages = True

    def __init__(self, standing: Callable[[int], str | None]) -> None:
        self._standing = standing

    async def call(self, method: str, pointers: Sequence[int]) -> list[str]:
        assert method == "mayWrite"
        return [self._standing(pointer) or UNKNOWN for pointer in pointers]


def writers(standing: Callable[[int], str | None] = lambda _: None, *, foreign: bool = True) -> Writers:
    return Writers(cast("Any", Manager(standing)), cast("Any", None), foreign=foreign)


async def refusal(call: Awaitable[object]) -> type[HootError] | None:
    """What a call is refused with, None where it is not."""
    try:
        await call
    except HootError as error:
        return type(error)
    return None
