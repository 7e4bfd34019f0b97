"""Effects exactly once for async listeners: as `effects`, with a store whose transactions are awaited.

    positions = AsyncSQLitePositions("ledger.db", "billing")  # of subscriber.async_sqlite

    @subscription.listener
    @exactly_once(positions)
    async def on_order(message, connection): ...

While a function waits within its transaction others may run in theirs. It is cancelled by `timeout_seconds` and at the
end of the subscriber, which rolls its transaction back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, Protocol, TypeVar

from delivery.errors import BadVersion
from delivery.model import Message
from subscriber.outcomes import Outcome

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
AsyncHandler = Callable[[Any, C], Awaitable[object]]
"""Called with a message, or a list of them, and the connection."""
Call = Callable[[list[Message], C], Awaitable[None]]

ATTEMPTS: Final = 100
"""Against another subscriber that handles the same messages at the same time."""


class AsyncStore(Protocol[C_co]):
    """A database of the application's, in its trio loop. One object serves one listener; several tasks may use it."""

    def transaction(self) -> AbstractAsyncContextManager[C_co]:
        """A transaction of its own: committed when the block ends, rolled back when it raises or is cancelled."""


class AsyncPositionStore(AsyncStore[C], Protocol[C]):
    """See effects.PositionStore."""

    async def load(self, queue: str, partition: int) -> int:
        """See effects.PositionStore."""

    async def commit(self, connection: C, queue: str, partition: int, before: int, position: int) -> bool:
        """See effects.PositionStore."""


class AsyncSeenStore(AsyncStore[C], Protocol[C]):
    """See effects.SeenStore."""

    async def add(self, connection: C, queue: str, partition: int, number: int) -> bool:
        """See effects.SeenStore."""


class AsyncOnce(Generic[C]):
    """An async listener whose effects and the note of them commit together."""

    needs_order = False
    """See effects.Once."""

    def __init__(self, store: AsyncStore[C], handler: AsyncHandler[C]) -> None:
        self.store: AsyncStore[C] = store
        self._handler = handler
        self.__qualname__ = str(getattr(handler, "__qualname__", type(handler).__qualname__))

    @abstractmethod
    async def handle(self, messages: list[Message], call: Call[C]) -> None:
        """Call `call` with those that were not handled yet, in a transaction, unless there are none."""

    async def __call__(self, given: Message | list[Message]) -> None:
        """Handle a message, or a list of one partition. Raises what the handler does, and the store."""

        async def call(fresh: list[Message], connection: C) -> None:
            result = await self._handler(fresh[0] if isinstance(given, Message) else fresh, connection)
            if isinstance(result, Outcome):
                raise result  # before the end of the transaction: nothing of a message that is not handled stays

        await self.handle([given] if isinstance(given, Message) else given, call)


class AsyncByPosition(AsyncOnce[C]):
    """Skips what lies before the stored position."""

    needs_order = True
    store: AsyncPositionStore[C]

    async def handle(self, messages: list[Message], call: Call[C]) -> None:
        """See AsyncOnce."""
        place = (messages[0].queue, messages[0].partition)
        for _ in range(ATTEMPTS):
            before = await self.store.load(*place)
            fresh = [message for message in messages if message.number > before]
            if not fresh:
                return
            async with self.store.transaction() as connection:
                if await self.store.commit(connection, *place, before, fresh[-1].number):
                    await call(fresh, connection)
                    return
        raise BadVersion(f"another subscriber keeps moving the position of partition {place[1]} of queue {place[0]!r}")


class AsyncById(AsyncOnce[C]):
    """Skips the messages whose ids are stored."""

    store: AsyncSeenStore[C]

    async def handle(self, messages: list[Message], call: Call[C]) -> None:
        """See AsyncOnce."""
        async with self.store.transaction() as connection:
            fresh = [one for one in messages if await self.store.add(connection, one.queue, one.partition, one.number)]
            if fresh:
                await call(fresh, connection)
