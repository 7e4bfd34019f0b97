"""Stores for effects of async listeners, exactly once, in a SQLite database.

A transaction has a connection of its own. It takes the lock of the database at its begin, for which a thread waits, so
that a listener that waits within its transaction holds up those that come behind it, and not the loop. The statements
of a transaction that has the lock are so short that they run in the loop.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import trio

from delivery import hop
from subscriber.sqlite import SQLitePositions, SQLiteSeen, SQLiteStore


class AsyncSQLiteStore:
    """A database file. For the tasks of one trio loop; `close` when no listener runs any more."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[sqlite3.Connection]:
        """See effects.AsyncStore. Raises sqlite3.Error, nothing committed."""
        with self._store.connections.borrowed() as connection:
            try:
                await hop.run_sync(connection.execute, "BEGIN IMMEDIATE")
                yield connection
                await hop.run_sync(connection.execute, "COMMIT")
            except BaseException:
                with trio.CancelScope(shield=True):
                    await hop.run_sync(connection.rollback)
                raise

    def close(self) -> None:
        """Close all connections."""
        self._store.close()


class AsyncSQLitePositions(AsyncSQLiteStore):
    """An AsyncPositionStore in the table `hoot_positions`, which SQLitePositions uses, too."""

    def __init__(self, path: str | Path, name: str) -> None:
        """See SQLiteStore."""
        self._positions = SQLitePositions(path, name)
        super().__init__(self._positions)

    async def load(self, queue: str, partition: int) -> int:
        """See effects.PositionStore."""
        return await hop.run_sync(self._positions.load, queue, partition)

    async def commit(
        self, connection: sqlite3.Connection, queue: str, partition: int, before: int, position: int
    ) -> bool:
        """See effects.PositionStore."""
        await trio.lowlevel.checkpoint()
        return self._positions.commit(connection, queue, partition, before, position)


class AsyncSQLiteSeen(AsyncSQLiteStore):
    """An AsyncSeenStore in the table `hoot_seen`, which SQLiteSeen uses, too."""

    def __init__(
        self, path: str | Path, name: str, *, keep_seconds: float = 7 * 86_400, keep_ids: int = 1_000_000
    ) -> None:
        """See SQLiteSeen."""
        self._seen = SQLiteSeen(path, name, keep_seconds=keep_seconds, keep_ids=keep_ids)
        super().__init__(self._seen)

    async def add(self, connection: sqlite3.Connection, queue: str, partition: int, number: int) -> bool:
        """See effects.SeenStore."""
        await trio.lowlevel.checkpoint()
        return self._seen.add(connection, queue, partition, number)
