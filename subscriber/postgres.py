"""Stores for effects exactly once in a PostgreSQL database (`pip install 'hoot[postgres]'`): the one that the listeners
write to.

    positions = PostgresPositions("postgresql://billing@db/billing", "billing")

    @subscription.listener
    @exactly_once(positions)
    def on_order(message, connection):  # of psycopg 3
        connection.execute("INSERT INTO charges VALUES (%s)", [message.body])

Each transaction has a connection of its own, kept for the next one. If it breaks while it commits, nobody knows whether
that came about: the listener fails, the message comes again, and the database tells.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final, LiteralString

import psycopg

from subscriber.connections import Connections
from subscriber.forgetting import Forgetting

CONNECT_SECONDS: Final = 10
_POSITIONS: Final = """
CREATE TABLE IF NOT EXISTS hoot_positions (
    name text, queue text, partition int, position bigint NOT NULL, PRIMARY KEY (name, queue, partition)
)
"""
_SEEN: Final = """
CREATE TABLE IF NOT EXISTS hoot_seen (
    name text, queue text, partition int, id bigint, at_ms bigint NOT NULL, PRIMARY KEY (name, queue, partition, id)
)
"""
_SEEN_BY_TIME: Final = "CREATE INDEX IF NOT EXISTS hoot_seen_by_time ON hoot_seen (name, at_ms)"
_CREATING: Final = "SELECT pg_advisory_xact_lock(hashtext('hoot'))"
"""Two that create a table at once would fail, IF NOT EXISTS or not."""
_FAILED: Final = (
    "a statement of the listener had failed, and it went on: PostgreSQL rolls such a transaction back; let the error"
    " through, or use a savepoint (connection.transaction())"
)

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore:
    """A database. Thread-safe; `close` when no listener runs any more."""

    def __init__(self, url: str, name: str, *tables: LiteralString) -> None:
        """`url` as psycopg takes it. `name` tells the listeners that share the database apart: that of the
        subscription, say.

        Raises psycopg.Error when the database cannot be reached, or its tables be made.
        """
        self._url, self._name = url, name
        self._connections = Connections(self._connect, lambda connection: connection.closed)
        with self.transaction() as connection:
            connection.execute(_CREATING)
            for table in tables:
                connection.execute(table)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """See effects.Store. Raises psycopg.Error; then nothing is committed, unless the connection broke meanwhile."""
        connection = self._begun()
        try:
            yield connection
            if connection.execute("COMMIT").statusmessage != "COMMIT":
                raise psycopg.errors.InFailedSqlTransaction(_FAILED)
        except BaseException:
            with contextlib.suppress(psycopg.Error):  # a broken one has nothing to roll back
                connection.execute("ROLLBACK")
            raise
        finally:
            self._connections.give_back(connection)

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def _begun(self) -> Connection:
        """A connection, in a transaction."""
        connection = self._connections.borrow()
        try:
            connection.execute("BEGIN")
        except psycopg.OperationalError:  # it broke while nobody used it, and so did the others, most likely
            connection.close()
            self._connections.close()
            connection = self._connect()
            connection.execute("BEGIN")
        return connection

    def _connect(self) -> Connection:
        return psycopg.connect(self._url, autocommit=True, connect_timeout=CONNECT_SECONDS)


class PostgresPositions(PostgresStore):
    """A PositionStore in the table `hoot_positions`."""

    def __init__(self, url: str, name: str) -> None:
        """See PostgresStore."""
        super().__init__(url, name, _POSITIONS)

    def load(self, queue: str, partition: int) -> int:
        """See effects.PositionStore."""
        with self.transaction() as connection:
            found = connection.execute(
                "SELECT position FROM hoot_positions WHERE (name, queue, partition) = (%s, %s, %s)",
                (self._name, queue, partition),
            ).fetchone()
        return 0 if found is None else int(found[0])

    def commit(self, connection: Connection, queue: str, partition: int, before: int, position: int) -> bool:
        """See effects.PositionStore. The row is locked until the transaction ends: whoever else wants to move it waits,
        and finds another position then.
        """
        place = (self._name, queue, partition)
        if not before:
            moved = connection.execute(
                "INSERT INTO hoot_positions VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING", (*place, position)
            )
        else:
            moved = connection.execute(
                "UPDATE hoot_positions SET position = %s WHERE (name, queue, partition, position) = (%s, %s, %s, %s)",
                (position, *place, before),
            )
        return moved.rowcount == 1


class PostgresSeen(PostgresStore):
    """A SeenStore in the table `hoot_seen`, bounded by time and by size."""

    def __init__(
        self, url: str, name: str, *, keep_seconds: float = 7 * 86_400, keep_ids: int = 1_000_000
    ) -> None:  # fmt: skip
        """See PostgresStore and Forgetting."""
        self._forgetting = Forgetting(keep_seconds, keep_ids)
        super().__init__(url, name, _SEEN, _SEEN_BY_TIME)

    def add(self, connection: Connection, queue: str, partition: int, number: int) -> bool:
        """See effects.SeenStore."""
        now_ms = time.time_ns() // 1_000_000
        if self._forgetting.is_due():
            self._forget(connection, now_ms)
        row = (self._name, queue, partition, number, now_ms)
        added = connection.execute("INSERT INTO hoot_seen VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING", row)
        return added.rowcount == 1

    def _forget(self, connection: Connection, now_ms: int) -> None:
        surplus = connection.execute(
            "SELECT at_ms FROM hoot_seen WHERE name = %s ORDER BY at_ms DESC LIMIT 1 OFFSET %s",
            (self._name, self._forgetting.keep_ids),
        ).fetchone()
        before = self._forgetting.before(now_ms, None if surplus is None else surplus[0])
        connection.execute("DELETE FROM hoot_seen WHERE name = %s AND at_ms < %s", (self._name, before))
