"""Transactions of an application: what it publishes in one is seen together or never, with whatever else takes part.

For example:

    with client.transaction() as tx:
        tx.join(Rows(database))
        tx.publish("orders", b"one order", key=b"customer-7")

On an exception everything is undone. Otherwise, in this order: each participant prepares; Hoot, the last one, publishes
what was kept back until then, so that readers wait as short as can be; the transaction is committed where all see it;
each participant commits. What fails before that undoes everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any, Final, Literal, Protocol, Self

from delivery import logs
from delivery.client.calls import Calls
from delivery.client.managing import Manager
from delivery.client.outgoing import Bytes, NewMessage
from delivery.client.queue import Queue
from delivery.errors import Closed, HootError, UnknownOutcome
from delivery.messaging.marks import header
from delivery.messaging.transactions import Snapshot
from delivery.model import partition_of
from delivery.transactions.asks import Begun
from delivery.transactions.errors import TransactionInvalid, UnknownTransaction

log = logs.logger(__name__)

PUBLISH_SECONDS_MAX: Final = 30.0
ROLL_BACK_SECONDS: Final = 10.0
"""How long a partition is tried before the transaction is made invalid instead."""

TransactionState = Literal["in_progress", "unknown", "committed", "aborted", "invalid"]


class Participant(Protocol):
    """A store of the application's own that takes part. Called by the thread that ends the transaction."""

    def changes(self) -> Iterable[bytes]:
        """Keys of what it changed: of two transactions with a key in common that ran at the same time one fails."""

    def prepare(self, transaction: Transaction) -> None:
        """Keep what was changed, so that `commit` cannot fail and `rollback` can still undo it. May raise."""

    def commit(self, transaction: Transaction) -> None:
        """It is committed."""

    def rollback(self, transaction: Transaction) -> None:
        """Undo everything, prepared or not. When it raises, the transaction becomes invalid instead of aborted."""


class Transaction:
    """One transaction (see `Client.transaction`), a context manager; for one thread at a time."""

    def __init__(
        self, begun: Begun, manager: Manager, calls: Calls, queue_of: Callable[[str], Queue], timeout: float
    ) -> None:  # fmt: skip
        """`calls` go to partitions."""
        self.pointer = begun.pointer
        """The write pointer."""
        self.snapshot: Snapshot = begun.snapshot
        """What it sees; `messaging.write_snapshot` makes of it what polls over HTTP take."""
        self.state: TransactionState = "in_progress"
        """`unknown`: it was to be committed, and no answer came (see `commit`)."""
        self._manager, self._calls, self._queue_of = manager, calls, queue_of
        self._until = monotonic() + timeout
        self._participants: list[Participant] = []
        self._changes: set[bytes] = set()
        self._messages: dict[str, list[NewMessage]] = {}
        self._chosen: dict[str, int] = {}
        """Per queue the partition of messages that name none."""
        self._published: set[tuple[str, int]] = set()
        """Queues and partitions where something may be stored."""

    def publish(
        self, queue: str, body: Bytes, *, key: Bytes | None = None, topic: str = "",
        headers: Mapping[str, bytes] | None = None, partition: int | None = None,
    ) -> None:  # fmt: skip
        """Have a message published with the commit; routing and arguments are those of `Queue.put`.

        Messages without a key and a partition go to one partition of the queue, which is chosen at random. Raises
        UnknownQueue; limits are checked by `commit`.
        """
        self._check_open()
        if partition is None:
            count = self._queue_of(queue).partitions
            chosen = self._chosen.setdefault(queue, random.randrange(count))
            partition = chosen if key is None else partition_of(bytes(key), count)
        carried = {**(headers or {}), **header(self.pointer)}
        self._messages.setdefault(queue, []).append(NewMessage(body, key, topic, carried, partition))

    def join(self, participant: Participant) -> None:
        """Have a store take part. Those that joined are asked in their order, and undone in the reverse one."""
        self._check_open()
        self._participants.append(participant)

    def changed(self, *keys: bytes) -> None:
        """Say what was changed, for an application whose stores are no participants; see `Participant.changes`."""
        self._check_open()
        self._changes.update(keys)

    def commit(self) -> None:
        """Make everything visible. The end of the context calls it.

        Raises TransactionConflict, TransactionInvalid (its time is over), what a participant's `prepare` or publishing
        raised: everything is undone then. UnknownOutcome: nobody answered, nothing was undone; the transaction is
        committed, or will be invalid, as `client.transactions.standing(pointer)` tells later. What a participant's
        `commit` raises comes last, and changes nothing for the others.
        """
        self._check_open()
        try:
            for participant in self._participants:
                participant.prepare(self)
            self._publish()
            self._commit()
        except BaseException:
            if self.state == "in_progress":
                self.rollback()
            raise
        self._tell_committed()

    def rollback(self) -> None:
        """Undo everything. Leaving the context with an exception calls it. What fails is logged.

        The transaction is invalid then, not aborted, and nobody ever sees its messages either way.
        """
        self._check_open()
        undone = [self._take_back(*place) for place in sorted(self._published)]
        undone += [self._tried(f"rollback of {one!r}", one.rollback, self) for one in reversed(self._participants)]
        if all(undone):
            self._tried("abort", self._manager.abort, self.pointer)
            self.state = "aborted"
        else:
            self._tried("invalidate", self._manager.invalidate, self.pointer)
            self.state = "invalid"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.state != "in_progress":
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def _publish(self) -> None:
        left = self._until - monotonic()
        if left <= 0:
            raise TransactionInvalid(f"the time of transaction {self.pointer} is over")
        for queue, messages in self._messages.items():
            self._published |= {(queue, one.partition) for one in messages if one.partition is not None}
            timeout = min(left, PUBLISH_SECONDS_MAX)
            self._queue_of(queue).put_of_transaction(self.pointer, messages, timeout=timeout)

    def _commit(self) -> None:
        changes = self._changes.union(*(participant.changes() for participant in self._participants))
        self.state = "unknown"
        try:
            self._manager.commit(self.pointer, sorted(changes))
        except HootError as error:
            if error.retryable or isinstance(error, UnknownTransaction):
                raise UnknownOutcome(f"transaction {self.pointer} may be committed: {error.message}") from error
            self.state = "in_progress"
            raise
        self.state = "committed"

    def _tell_committed(self) -> None:
        failed: list[Exception] = []
        for participant in self._participants:
            try:
                participant.commit(self)
            except Exception as error:  # noqa: BLE001 - the first is raised, when all have heard
                failed.append(error)
        if failed:
            raise failed[0]

    def _take_back(self, queue: str, partition: int) -> bool:
        call = self._calls.call
        arguments = (queue, partition, "rollBack", queue, partition, self.pointer)
        return self._tried(f"rollback in {queue}/{partition}", call, *arguments, timeout=ROLL_BACK_SECONDS)

    def _tried(self, what: str, call: Callable[..., object], *args: object, **options: Any) -> bool:  # noqa: ANN401
        try:
            call(*args, **options)
        except Exception:
            log.exception("transaction %d: %s failed", self.pointer, what)
            return False
        return True

    def _check_open(self) -> None:
        if self.state != "in_progress":
            raise Closed(f"transaction {self.pointer} has ended: {self.state}")
