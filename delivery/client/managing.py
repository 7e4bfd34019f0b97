"""Which host manages transactions, and calling it: found, followed and tried again as a partition's owner is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from delivery.client.calls import CALL_SECONDS, Calls
from delivery.client.hosts import OwnerCatalog, Owners
from delivery.messaging.transactions import Snapshot, read_snapshot
from delivery.metastore.live import LiveHosts
from delivery.metastore.managers.records import OwnerInfo
from delivery.transactions.asks import Begun, Listed, Standing
from delivery.transactions.pointers import began_ms

NAME: Final = "transactions"
"""What stands for a queue where the one who manages transactions is sought as an owner."""


class ManagerCatalog(OwnerCatalog, Protocol):
    """The part of the catalog that tells who manages transactions."""

    def transaction_manager(self) -> OwnerInfo | None:
        """The host, if it lives with that session."""


class Managers(Owners):
    """The manager of transactions, as the owner of the only partition of NAME."""

    def __init__(self, catalog: ManagerCatalog) -> None:
        super().__init__(catalog)
        self._manager = catalog.transaction_manager

    def _look(
        self, queue: str, partition: int | None  # noqa: ARG002 - there is but one
    ) -> tuple[LiveHosts, dict[int, OwnerInfo]]:  # fmt: skip
        manager = self._manager()
        return LiveHosts(self._catalog.readable_hosts()[0]), {} if manager is None else {0: manager}


class Manager:
    """The calls, to whichever host manages transactions. Thread-safe. Errors that may go away are tried again."""

    def __init__(self, calls: Calls, forgettable: Callable[[int], int]) -> None:
        """`calls` go by Managers; `forgettable` is Forgetting.before_ms."""
        self._calls, self._forgettable = calls, forgettable

    def begin(self, timeout_ms: int) -> Begun:
        """A new transaction. Raises InvalidRequest, Throttled, NoHost and other errors of finding the manager."""
        found = self._call("beginTransaction", timeout_ms)
        return Begun(found.writePointer, found.deadlineMs, read_snapshot(found.snapshot))

    def commit(self, pointer: int, changes: list[bytes]) -> None:
        """Make what it did visible. Raises TransactionConflict, TransactionInvalid, TransactionFinished.

        With UnknownTransaction or an error that is retryable nobody knows whether it was committed.
        """
        self._call("commitTransaction", pointer, changes)

    def abort(self, pointer: int) -> None:
        """End one that has undone everything. Raises TransactionFinished, UnknownTransaction."""
        self._call("abortTransaction", pointer)

    def invalidate(self, pointer: int) -> None:
        """End one that has not. Raises TransactionFinished, UnknownTransaction."""
        self._call("invalidateTransaction", pointer)

    def standing(self, pointer: int) -> Standing:
        """How it stands. Raises UnknownTransaction."""
        found: Standing = self._call("transactionState", pointer)
        return found

    def all(self) -> list[Listed]:
        """All that are in progress or invalid, oldest first."""
        found = self._call("listTransactions")
        return [Listed(one.writePointer, one.state, one.deadlineMs) for one in found]

    def info(self, pointer: int) -> Listed:
        """One of these, or how it ended. Raises UnknownTransaction."""
        found = next((one for one in self.all() if one.pointer == pointer), None)
        return found or Listed(pointer, self.standing(pointer), 0)

    def look(self) -> Snapshot:
        """What one sees now who begins no transaction."""
        return read_snapshot(self.view())

    def view(self) -> bytes:
        """The same as polls and reads take it."""
        return bytes(self._call("transactionSnapshot", (), 0))

    def prunable(self, before_ms: int | None = None) -> list[Listed]:
        """The invalid ones that began before a time; without one, those of which no message is stored any more."""
        invalid = [one for one in self.all() if one.standing == "invalid"]
        if before_ms is None:
            before_ms = self._forgettable(began_ms(invalid[0].pointer)) if invalid else 0
        return [one for one in invalid if began_ms(one.pointer) < before_ms]

    def prune(self, before_ms: int | None = None) -> int:
        """Forget these, and say how many. Hosts forget those without messages by themselves.

        Where messages of others are left, they are seen as committed from then on. Raises InvalidRequest for a time
        that is not 25 hours ago.
        """
        if before_ms is None:
            last = self.prunable()[-1:]
            before_ms = began_ms(last[0].pointer) + 1 if last else 0
        return int(self._call("pruneTransactions", before_ms))

    def _call(self, method: str, *args: object) -> Any:  # noqa: ANN401 - a struct of the IDL
        return self._calls.call(NAME, 0, method, *args, timeout=CALL_SECONDS)
