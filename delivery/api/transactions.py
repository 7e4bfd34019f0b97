"""The calls about transactions, over Thrift and, by the same words, over HTTP (`rest.transactions`)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from delivery.api.reading import WAIT_MS_MAX, check_number
from delivery.batch import encode
from delivery.client.calls import Calls
from delivery.client.managing import NAME
from delivery.cluster.transacting import Transacting
from delivery.errors import InvalidRequest, NotOwner
from delivery.ids import ID_MAX
from delivery.messaging.marks import Rollback, rolled_back
from delivery.messaging.transactions import write_snapshot
from delivery.model import check_name
from delivery.publish.publisher import Publisher
from delivery.rpc.protocol import Call, load_idl
from delivery.rpc.server import Handler
from delivery.transactions.asks import (
    Abort,
    Ask,
    Begun,
    Commit,
    Invalidate,
    Listed,
    MayWrite,
    Prune,
    Survey,
    check_pointer,
    check_timeout,
    digests,
)

FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "beginTransaction": ("timeoutMs",),
    "commitTransaction": ("writePointer", "changes"),
    "abortTransaction": ("writePointer",),
    "invalidateTransaction": ("writePointer",),
    "transactionState": ("writePointer",),
    "transactionSnapshot": ("unfinished", "waitMs"),
    "mayWrite": ("writePointers",),
    "listTransactions": (),
    "pruneTransactions": ("beforeMs",),
    "rollBack": ("queue", "partition", "writePointer"),
}
"""The calls by their names in the IDL, with their arguments."""
UNKNOWN: Final = "unknown"
"""How a transaction stands of which nothing is known, in the answer of `mayWrite`."""
ASKED_MAX: Final = 1000
_AT_ONCE: Final = 16
"""In threads: each waits for the manager's answer."""


class TransactionCalls:
    """The calls on this host, which has to be the manager, or for `rollBack` the owner."""

    def __init__(
        self, transacting: Transacting, publisher: Publisher, check_undo: Callable[[int], Awaitable[None]]
    ) -> None:  # fmt: skip
        """`check_undo`: see Writers."""
        self._transacting, self._publisher, self._check_undo = transacting, publisher, check_undo
        self._idl = load_idl("delivery")
        self._methods: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "beginTransaction": self._begin,
            "commitTransaction": self._commit,
            "abortTransaction": self._end(Abort),
            "invalidateTransaction": self._end(Invalidate),
            "transactionState": self._end(Ask),
            "transactionSnapshot": self._look,
            "mayWrite": self._may_write,
            "listTransactions": self._survey,
            "pruneTransactions": self._prune,
            "rollBack": self._roll_back,
        }

    @property
    def manages(self) -> bool:
        """Whether this host believes to manage transactions."""
        return self._transacting.manages

    async def call(self, method: str, *args: Any) -> Any:
        """See the IDL. Raises NotOwner while another host manages transactions."""
        return await self._methods[method](*args)

    async def _begin(self, timeout_ms: int | None) -> Any:
        begun = await self._transacting.answer(check_timeout(timeout_ms or None))
        assert isinstance(begun, Begun)
        return self._idl.Transaction(
            writePointer=begun.pointer, deadlineMs=begun.deadline_ms, snapshot=write_snapshot(begun.snapshot)
        )

    async def _commit(self, pointer: int | None, changes: Sequence[bytes] | None) -> None:
        await self._transacting.answer(Commit(check_pointer(pointer), digests(changes or ())))

    def _end(self, kind: type[Abort | Invalidate | Ask]) -> Callable[[int | None], Awaitable[Any]]:
        async def call(pointer: int | None) -> Any:
            return await self._transacting.answer(kind(check_pointer(pointer)))

        return call

    async def _look(self, unfinished: Sequence[int] | None = None, wait_ms: int | None = None) -> bytes:
        seconds = min(max(wait_ms or 0, 0), WAIT_MS_MAX) / 1000
        pointers = [check_pointer(one) for one in unfinished or ()]
        return write_snapshot(await self._transacting.changed(pointers, seconds))

    async def _may_write(self, pointers: Sequence[int] | None) -> list[str]:
        if len(pointers or ()) > ASKED_MAX:
            raise InvalidRequest(f"at most {ASKED_MAX} transactions can be asked for at once")
        found = await self._transacting.answer(MayWrite(pointers or ()))
        assert isinstance(found, list)
        return [str(standing or UNKNOWN) for standing in found]

    async def _survey(self) -> list[Any]:
        found = await self._transacting.answer(Survey())
        assert isinstance(found, list)
        return [
            self._idl.TransactionInfo(writePointer=one.pointer, state=one.standing, deadlineMs=one.deadline_ms)
            for one in found
            if isinstance(one, Listed)
        ]

    async def _prune(self, before_ms: int | None) -> Any:
        return await self._transacting.answer(Prune(before_ms or 0))

    async def _roll_back(self, queue: str, partition: int | None, pointer: int | None) -> None:
        number, undone = check_number(partition), check_pointer(pointer)
        await self._check_undo(undone)
        note = rolled_back(Rollback(undone, 0, ID_MAX))
        await self._publisher.begin(check_name("queue", queue), number, encode([note], number), aside=True).wait()


class WithTransactions:
    """A handler of RegionHost that leaves all other calls to another."""

    def __init__(self, rest: Handler, transactions: TransactionCalls) -> None:
        self._rest, self._transactions = rest, transactions

    def begin(self, call: Call) -> Any:
        """See Handler."""
        if (fields := FIELDS.get(call.method)) is None:
            return self._rest.begin(call)
        return partial(self._transactions.call, call.method, *(getattr(call.args, name) for name in fields))


class AnyHost:
    """The calls whichever host answers them: this one where it manages, else the one that does."""

    def __init__(self, here: TransactionCalls, elsewhere: Calls) -> None:
        self._here, self._elsewhere = here, elsewhere
        self._limiter = trio.CapacityLimiter(_AT_ONCE)

    async def call(self, method: str, *args: Any, seconds: float) -> Any:
        """See the IDL; tried again while the manager changes, for so many seconds."""
        if self._here.manages:
            with contextlib.suppress(NotOwner):  # another host has taken over
                return await self._here.call(method, *args)
        call = partial(self._elsewhere.call, NAME, 0, method, *args, timeout=seconds)
        return await trio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)
