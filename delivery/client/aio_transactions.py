"""The transactions of the trio face (see `aio`)."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import trio

from delivery.client.aio_publisher import hop
from delivery.client.managing import Manager
from delivery.client.outgoing import Bytes
from delivery.client.transactions import Participant, Transaction, TransactionState
from delivery.messaging.transactions import Snapshot
from delivery.transactions.asks import Listed, Standing


class AsyncTransaction:
    """See Transaction. An async context manager; participants are called in a thread. Not cancelled while it ends."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    @property
    def pointer(self) -> int:
        """The write pointer."""
        return self._transaction.pointer

    @property
    def snapshot(self) -> Snapshot:
        """What it sees."""
        return self._transaction.snapshot

    @property
    def state(self) -> TransactionState:
        """See Transaction."""
        return self._transaction.state

    async def publish(self, queue: str, body: Bytes, **options: Any) -> None:  # noqa: ANN401
        """See Transaction.publish."""
        await hop(self._transaction.publish, queue, body, **options)

    def join(self, participant: Participant) -> None:
        """See Transaction.join."""
        self._transaction.join(participant)

    def changed(self, *keys: bytes) -> None:
        """See Transaction.changed."""
        self._transaction.changed(*keys)

    async def commit(self) -> None:
        """See Transaction.commit."""
        with trio.CancelScope(shield=True):
            await hop(self._transaction.commit)

    async def rollback(self) -> None:
        """See Transaction.rollback."""
        with trio.CancelScope(shield=True):
            await hop(self._transaction.rollback)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        with trio.CancelScope(shield=True):
            await hop(self._transaction.__exit__, kind, error, trace)


class AsyncManager:
    """See Manager."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def standing(self, pointer: int) -> Standing:
        """See Manager.standing."""
        return await hop(self._manager.standing, pointer)

    async def info(self, pointer: int) -> Listed:
        """See Manager.info."""
        return await hop(self._manager.info, pointer)

    async def all(self) -> list[Listed]:
        """See Manager.all."""
        return await hop(self._manager.all)

    async def look(self) -> Snapshot:
        """See Manager.look."""
        return await hop(self._manager.look)

    async def abort(self, pointer: int) -> None:
        """See Manager.abort."""
        await hop(self._manager.abort, pointer)

    async def invalidate(self, pointer: int) -> None:
        """See Manager.invalidate."""
        await hop(self._manager.invalidate, pointer)

    async def prunable(self, before_ms: int | None = None) -> list[Listed]:
        """See Manager.prunable."""
        return await hop(self._manager.prunable, before_ms)

    async def prune(self, before_ms: int | None = None) -> int:
        """See Manager.prune."""
        return await hop(self._manager.prune, before_ms)
