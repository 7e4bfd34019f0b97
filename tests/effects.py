"""Databases that effects are written to: for the tests of the stores that make them happen once."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psycopg

from delivery.model import Message
from subscriber.effects import Once, exactly_once, idempotent
from subscriber.postgres import PostgresPositions, PostgresSeen, PostgresStore
from subscriber.sqlite import SQLitePositions, SQLiteSeen, SQLiteStore

Store = SQLiteStore | PostgresStore
S = TypeVar("S", bound=Store)
_ORDER = "SELECT id FROM effects ORDER BY place"


def message(number: int, partition: int = 0, queue: str = "q") -> Message:
    return Message(number, b"x", "", None, partition, queue)


def handle(given: Message | list[Message], connection: Any) -> None:
    """The handler: writes each message's id once more, behind those that are there."""
    for one in [given] if isinstance(given, Message) else given:
        connection.execute(f"INSERT INTO effects SELECT coalesce(max(place), 0) + 1, {one.number} FROM effects")


class Database(Protocol):
    """An empty database with the table `effects`. `close` closes the stores that it gave."""

    def close(self) -> None: ...

    def positions(self, name: str = "billing") -> Any:
        """A PositionStore as a process opens it."""

    def seen(self, name: str = "billing", **limits: Any) -> Any:
        """A SeenStore, likewise."""

    def noted(self) -> list[int]:
        """The ids that were written, in order."""


class _Stores(contextlib.ExitStack):
    """Those that a test opened."""

    def _kept(self, store: S) -> S:
        self.callback(store.close)
        return store


class SQLiteDatabase(_Stores):
    """In a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / f"{secrets.token_hex(6)}.db"
        create(self.positions())

    def positions(self, name: str = "billing") -> SQLitePositions:
        """See Database."""
        return self._kept(SQLitePositions(self._path, name))

    def seen(self, name: str = "billing", **limits: Any) -> SQLiteSeen:
        """See Database."""
        return self._kept(SQLiteSeen(self._path, name, **limits))

    def noted(self) -> list[int]:
        """See Database."""
        return noted(self.positions())


class PostgresDatabase(_Stores):
    """In a schema of its own."""

    def __init__(self, url: str) -> None:
        super().__init__()
        schema = f"t{secrets.token_hex(6)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")  # no text of others'
        self.url = f"{url}&options=-csearch_path%3D{schema}"
        create(self.positions())

    def positions(self, name: str = "billing") -> PostgresPositions:
        """See Database."""
        return self._kept(PostgresPositions(self.url, name))

    def seen(self, name: str = "billing", **limits: Any) -> PostgresSeen:
        """See Database."""
        return self._kept(PostgresSeen(self.url, name, **limits))

    def noted(self) -> list[int]:
        """See Database."""
        with psycopg.connect(self.url) as connection:
            return [row[0] for row in connection.execute(_ORDER)]


def opened(database: Database, kind: str, name: str = "billing") -> tuple[Any, Callable[[Any], Once[Any]]]:
    """A store as a process opens it, and the decorator over it."""
    store = database.positions(name) if kind == "positions" else database.seen(name)
    return store, exactly_once(store) if kind == "positions" else idempotent(store)


def create(store: Store) -> None:
    with store.transaction() as connection:
        connection.execute("CREATE TABLE effects (place int, id bigint)")


def noted(store: SQLiteStore) -> list[int]:
    with store.transaction() as connection:
        return [row[0] for row in connection.execute(_ORDER)]
