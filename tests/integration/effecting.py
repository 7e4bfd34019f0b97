"""A subscriber as a process of its own that writes to a database, exactly once, and dies where it is told to.

Each callback inserts the message's id into the table `effects`, which takes it any number of times. Run as `python -m
tests.integration.effecting JSON`; says `ready` when it is attached.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from subscriber import Message, RetryPolicy, Subscriber
from subscriber.async_sqlite import AsyncSQLitePositions, AsyncSQLiteSeen
from subscriber.effects import exactly_once, idempotent
from subscriber.postgres import PostgresPositions, PostgresSeen
from subscriber.sqlite import SQLitePositions, SQLiteSeen


class Orders(msgspec.Struct):
    """How to behave."""

    zookeeper: str
    queue: str
    name: str
    database: str
    """A file of SQLite's, or the address of a PostgreSQL; with the table `effects`."""
    by: str = "positions"
    """Or `seen`."""
    lists: bool = False
    awaited: bool = False
    """An async function, with SQLite."""
    retry: RetryPolicy | None = None
    poison: int = 0
    """The id of a message to raise at, after writing; 0 for none."""
    die_before: int = 0
    """kill -9 at so many callbacks, after what this one wrote and before the commit; 0 for never."""
    die_after: int = 0
    """kill -9 behind the commit of so many callbacks, before the host hears of it; 0 for never."""


READY = threading.Event()
"""Whoever starts this process was told that it is attached."""


def die() -> None:
    READY.wait(30)
    os.kill(os.getpid(), signal.SIGKILL)


class Effects:
    """The handler, and what follows it."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.count = 0

    def handle(self, given: Message | list[Message], connection: Any) -> None:
        for one in [given] if isinstance(given, Message) else given:
            connection.execute(f"INSERT INTO effects VALUES ({one.partition}, {one.number})")
            if one.number == self.orders.poison:
                raise ValueError("poison")
        self.count += 1
        if self.count == self.orders.die_before:
            die()

    async def handle_awaited(self, given: Message | list[Message], connection: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.handle(given, connection)

    def listener(self) -> Callable[[Any], object]:
        if self.orders.awaited:
            awaited = self.once_awaited()

            async def call_awaited(given: Any) -> None:
                await awaited(given)
                self.after_commit()

            return call_awaited
        once = self.once()

        def call(given: Any) -> None:
            once(given)
            self.after_commit()

        return call

    def after_commit(self) -> None:
        if self.orders.die_after and self.count >= self.orders.die_after:
            die()

    def once_awaited(self) -> Callable[[Any], Awaitable[object]]:
        database, name = self.orders.database, self.orders.name
        if self.orders.by == "positions":
            return exactly_once(AsyncSQLitePositions(database, name))(self.handle_awaited)
        return idempotent(AsyncSQLiteSeen(database, name))(self.handle_awaited)

    def once(self) -> Callable[[Any], object]:
        database, name = self.orders.database, self.orders.name
        postgres = database.startswith("postgresql:")
        if self.orders.by == "positions":
            positions = (PostgresPositions if postgres else SQLitePositions)(database, name)
            return exactly_once(positions)(self.handle)
        seen = (PostgresSeen if postgres else SQLiteSeen)(database, name)
        return idempotent(seen)(self.handle)


def main() -> None:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    subscriber = Subscriber(orders.name, zookeeper=orders.zookeeper)
    subscription = subscriber.subscribe(orders.queue, start="earliest", retry=orders.retry)
    listener = Effects(orders).listener()
    (subscription.batch_listener if orders.lists else subscription.listener)(listener)
    subscriber.start()
    print("ready", flush=True)
    READY.set()
    subscriber.run()


if __name__ == "__main__":
    main()
