"""Stores for effects exactly once in a SQLite database: the same file that the listeners write to.

Each transaction has a connection of its own. It takes the lock of the database at its begin, so that of two
subscribers one waits for the other, up to LOCK_SECONDS.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from subscriber.connections import Connections
from subscriber.forgetting import Forgetting

LOCK_SECONDS: Final = 30.0

_POSITIONS: Final = """
CREATE TABLE IF NOT EXISTS hoot_positions (
    name TEXT, queue TEXT, partition INTEGER, position INTEGER NOT NULL, PRIMARY KEY (name, queue, partition)
) WITHOUT ROWID
"""
_SEEN: Final = """
CREATE TABLE IF NOT EXISTS hoot_seen (
    name TEXT, queue TEXT, partition INTEGER, id INTEGER, at_ms INTEGER NOT NULL,
    PRIMARY KEY (name, queue, partition, id)
) WITHOUT ROWID
"""
_SEEN_BY_TIME: Final = "CREATE INDEX IF NOT EXISTS hoot_seen_by_time ON hoot_seen (name, at_ms)"


class SQLiteStore:
    """A database file. Thread-safe; `close` when no listener runs any more."""

    def __init__(self, path: str | Path, name: str, *tables: str) -> None:
        """`name` tells the listeners that share the file apart: that of the subscription, say.

        Raises sqlite3.Error when the file cannot be opened.
        """
        self._path, self._name = path, name
        self.connections = Connections(self._connect)
        with self.transaction() as connection:
            for table in tables:
                connection.execute(table)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """See effects.Store. Raises sqlite3.Error, nothing committed."""
        with self.connections.borrowed() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise

    def close(self) -> None:
        """Close all connections."""
        self.connections.close()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)


class SQLitePositions(SQLiteStore):
    """A PositionStore in the table `hoot_positions`."""

    def __init__(self, path: str | Path, name: str) -> None:
        """See SQLiteStore."""
        super().__init__(path, name, _POSITIONS)

    def load(self, queue: str, partition: int) -> int:
        """See effects.PositionStore."""
        with self.connections.borrowed() as connection:
            found = connection.execute(
                "SELECT position FROM hoot_positions WHERE (name, queue, partition) = (?, ?, ?)",
                (self._name, queue, partition),
            ).fetchone()
        return 0 if found is None else int(found[0])

    def commit(self, connection: sqlite3.Connection, queue: str, partition: int, before: int, position: int) -> bool:
        """See effects.PositionStore."""
        place = (self._name, queue, partition)
        connection.execute("INSERT OR IGNORE INTO hoot_positions VALUES (?, ?, ?, 0)", place)
        moved = connection.execute(
            "UPDATE hoot_positions SET position = ? WHERE (name, queue, partition, position) = (?, ?, ?, ?)",
            (position, *place, before),
        )
        return moved.rowcount == 1


class SQLiteSeen(SQLiteStore):
    """A SeenStore in the table `hoot_seen`, bounded by time and by size."""

    def __init__(
        self, path: str | Path, name: str, *, keep_seconds: float = 7 * 86_400, keep_ids: int = 1_000_000
    ) -> None:
        """See SQLiteStore and Forgetting."""
        self._forgetting = Forgetting(keep_seconds, keep_ids)
        super().__init__(path, name, _SEEN, _SEEN_BY_TIME)

    def add(self, connection: sqlite3.Connection, queue: str, partition: int, number: int) -> bool:
        """See effects.SeenStore."""
        now_ms = time.time_ns() // 1_000_000
        if self._forgetting.is_due():
            self._forget(connection, now_ms)
        row = (self._name, queue, partition, number, now_ms)
        return connection.execute("INSERT OR IGNORE INTO hoot_seen VALUES (?, ?, ?, ?, ?)", row).rowcount == 1

    def _forget(self, connection: sqlite3.Connection, now_ms: int) -> None:
        surplus = connection.execute(
            "SELECT at_ms FROM hoot_seen WHERE name = ? ORDER BY at_ms DESC LIMIT 1 OFFSET ?",
            (self._name, self._forgetting.keep_ids),
        ).fetchone()
        before = self._forgetting.before(now_ms, None if surplus is None else surplus[0])
        connection.execute("DELETE FROM hoot_seen WHERE name = ? AND at_ms < ?", (self._name, before))
