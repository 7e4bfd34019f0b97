"""Effects exactly once: what a listener writes to a database, and that it did so, commit together.

A message may come again after a fault, so a listener that only writes does so twice. One that is decorated here gets
the connection of a transaction, in which a store of the application's own notes what was handled. Either both are there
afterwards or neither is: a message that comes again is skipped where it was committed, and handled where it was not,
whenever its subscriber was killed.

    positions = SQLitePositions("ledger.db", "billing")  # of subscriber.sqlite

    @subscription.listener
    @exactly_once(positions)
    def on_order(message, connection):
        connection.execute("INSERT INTO charges VALUES (?)", [message.body])

`exactly_once` keeps one number for each partition, and needs their order: `RetryPolicy(order="partition")`.
`idempotent` keeps the ids, for some time, and needs none. Both work for `listener` and for `batch_listener`, whose
function gets a list and handles it in one transaction; and for async functions with an async store (`async_effects`).
The same for PostgreSQL: `subscriber.postgres`.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar, overload

from delivery.errors import BadVersion, InvalidRequest
from delivery.metastore.records import SubscriptionRecord
from delivery.model import Message
from subscriber.async_effects import (
    ATTEMPTS,
    AsyncById,
    AsyncByPosition,
    AsyncHandler,
    AsyncOnce,
    AsyncPositionStore,
    AsyncSeenStore,
)
from subscriber.listeners import Registered
from subscriber.outcomes import Outcome

__all__ = ["AsyncPositionStore", "AsyncSeenStore", "PositionStore", "SeenStore", "exactly_once", "idempotent"]

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
F = TypeVar("F")
Handler = Callable[[Any, C], object]
"""Called with a message, or a list of them, and the connection."""


class Store(Protocol[C_co]):
    """A database of the application's. One object serves one listener; its threads may use it at the same time."""

    def transaction(self) -> AbstractContextManager[C_co]:
        """A transaction of its own: committed when the block ends, rolled back when it raises."""


class PositionStore(Store[C], Protocol[C]):
    """Keeps up to which id all effects of a partition are committed."""

    def load(self, queue: str, partition: int) -> int:
        """That id; 0 for none."""

    def commit(self, connection: C, queue: str, partition: int, before: int, position: int) -> bool:
        """Move it from `before` to `position` within the transaction; False, nothing moved, when it is not `before`.

        Until the transaction ends, nobody else may move it.
        """


class SeenStore(Store[C], Protocol[C]):
    """Keeps the ids of the messages whose effects are committed, for as long as they may come again."""

    def add(self, connection: C, queue: str, partition: int, number: int) -> bool:
        """Note an id within the transaction; False when it is there already."""


class Once(Generic[C]):
    """A listener whose effects and the note of them commit together."""

    needs_order = False
    """Whether the messages of a partition must come in the order of their ids."""

    def __init__(self, store: Store[C], handler: Handler[C]) -> None:
        self.store: Store[C] = store
        self._handler = handler
        self.__qualname__ = str(getattr(handler, "__qualname__", type(handler).__qualname__))

    @abstractmethod
    def handle(self, messages: list[Message], call: Callable[[list[Message], C], None]) -> None:
        """Call `call` with those that were not handled yet, in a transaction, unless there are none."""

    def __call__(self, given: Message | list[Message]) -> None:
        """Handle a message, or a list of one partition. Raises what the handler does, and the store."""

        def call(fresh: list[Message], connection: C) -> None:
            result = self._handler(fresh[0] if isinstance(given, Message) else fresh, connection)
            if isinstance(result, Outcome):
                raise result  # before the end of the transaction: nothing of a message that is not handled stays

        self.handle([given] if isinstance(given, Message) else given, call)


class ByPosition(Once[C]):
    """Skips what lies before the stored position."""

    needs_order = True
    store: PositionStore[C]

    def __init__(self, store: PositionStore[C], handler: Handler[C]) -> None:
        super().__init__(store, handler)
        self._known: dict[tuple[str, int], int] = {}
        """The positions as this process loaded or moved them last."""

    def handle(self, messages: list[Message], call: Callable[[list[Message], C], None]) -> None:
        place = (messages[0].queue, messages[0].partition)
        for _ in range(ATTEMPTS):
            known = self._known.pop(place, None)
            before = self.store.load(*place) if known is None else known
            fresh = [message for message in messages if message.number > before]
            position = fresh[-1].number if fresh else before
            if not fresh or self._commit(place, before, position, fresh, call):
                self._known[place] = position
                return
        raise BadVersion(f"another subscriber keeps moving the position of partition {place[1]} of queue {place[0]!r}")

    def _commit(
        self, place: tuple[str, int], before: int, position: int, fresh: list[Message],
        call: Callable[[list[Message], C], None],
    ) -> bool:  # fmt: skip
        with self.store.transaction() as connection:
            moved = self.store.commit(connection, *place, before, position)
            if moved:
                call(fresh, connection)
        return moved


class ById(Once[C]):
    """Skips the messages whose ids are stored."""

    store: SeenStore[C]

    def handle(self, messages: list[Message], call: Callable[[list[Message], C], None]) -> None:
        with self.store.transaction() as connection:
            fresh = [one for one in messages if self.store.add(connection, one.queue, one.partition, one.number)]
            if fresh:
                call(fresh, connection)


@overload
def exactly_once(store: PositionStore[C]) -> Callable[[Handler[C]], ByPosition[C]]: ...
@overload
def exactly_once(store: AsyncPositionStore[C]) -> Callable[[AsyncHandler[C]], AsyncByPosition[C]]: ...
def exactly_once(store: Any) -> Callable[[Any], Any]:
    """Make a listener of a function of (message, connection), or (messages, connection), by the stored positions.

    The subscription needs `RetryPolicy(order="partition")`. Raises InvalidRequest for an async function with a store
    that is none, whose transactions are of a thread, and the other way about.
    """
    is_async = inspect.iscoroutinefunction(store.load)
    return lambda handler: (AsyncByPosition if is_async else ByPosition)(store, _fitting(handler, is_async))


@overload
def idempotent(store: SeenStore[C]) -> Callable[[Handler[C]], ById[C]]: ...
@overload
def idempotent(store: AsyncSeenStore[C]) -> Callable[[AsyncHandler[C]], AsyncById[C]]: ...
def idempotent(store: Any) -> Callable[[Any], Any]:
    """As `exactly_once`, by the ids of the messages, in whatever order they come. Raises InvalidRequest likewise."""
    is_async = inspect.iscoroutinefunction(store.add)
    return lambda handler: (AsyncById if is_async else ById)(store, _fitting(handler, is_async))


def _fitting(handler: F, is_async: bool) -> F:
    """`handler`, if it is a function that goes with such a store."""
    if callable(handler) and inspect.iscoroutinefunction(handler) == is_async:
        return handler
    kind = "an async function, as its store is" if is_async else "a sync function, or the store is an async one"
    raise InvalidRequest(f"what handles a message exactly once is {kind}; not {repr(handler)[:60]}")


def check_effects(listeners: Iterable[Registered], record: SubscriptionRecord, *, manual: bool = False) -> bool:
    """Whether a listener needs the order of ids.

    Raises InvalidRequest where one could take a message that it has not handled for one that it has.
    """
    effects = [one.call for one in listeners if isinstance(one.call, Once | AsyncOnce)]
    if len({id(one.store) for one in effects}) < len(effects):
        raise InvalidRequest("two listeners share a store, and the second would skip all: give each one of its own")
    if effects and manual:
        raise InvalidRequest("an effect is handled when it is committed: it cannot be acknowledged by hand")
    ordered = any(one.needs_order for one in effects)
    if ordered and record.kind == "key_shared":
        raise InvalidRequest(
            "exactly_once keeps one position for each partition, which does not do for kind='key_shared', where several"
            " members share one: use idempotent"
        )
    if ordered and record.retry.order != "partition":
        raise InvalidRequest(
            "exactly_once keeps one position for each partition, which does not do for RetryPolicy(order='key'):"
            " use idempotent"
        )
    return ordered
