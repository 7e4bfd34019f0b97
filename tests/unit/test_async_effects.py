"""Effects exactly once of async listeners: several at a time, cancelled, failing, and other subscribers beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from delivery.errors import BadVersion, InvalidRequest
from delivery.metastore.policy import RetryPolicy
from subscriber import Retry
from subscriber.async_effects import AsyncOnce
from subscriber.async_sqlite import AsyncSQLitePositions, AsyncSQLiteSeen
from subscriber.effects import check_effects, exactly_once, idempotent
from subscriber.listeners import check_listener
from subscriber.sqlite import SQLitePositions
from tests.effects import create, handle, message, noted
from tests.unit.test_effects import record

Handler = Callable[..., Awaitable[object]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "ledger.db"
    create(SQLitePositions(found, "effects"))
    return found


def made(kind: str, path: Path, handler: Handler) -> AsyncOnce[Any]:
    if kind == "positions":
        return exactly_once(AsyncSQLitePositions(path, "billing"))(handler)
    return idempotent(AsyncSQLiteSeen(path, "billing"))(handler)


def effects(path: Path) -> list[int]:
    return noted(SQLitePositions(path, "effects"))


@pytest.mark.parametrize("kind", ["positions", "seen"])
@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_whatever_comes_again_fails_or_is_cancelled_each_message_has_its_effect_once(
    kind: str, lists: bool, seed: int, path: Path
) -> None:
    random, fate = Random(seed), "fine"

    async def handler(given: Any, connection: sqlite3.Connection) -> object:
        handle(given, connection)
        await trio.lowlevel.checkpoint()
        if fate == "fails":
            raise ValueError("told to fail")
        if fate == "cancelled":
            await trio.sleep_forever()
        return Retry() if fate == "again" else None

    async def story() -> None:
        nonlocal fate
        listener, done = made(kind, path, handler), 0
        for _ in range(10):
            run = [message(number) for number in range(max(0, done - random.randint(0, 3)) + 1, done + 4)]
            for part in [run] if lists else [[one] for one in run]:
                fate = random.choice(["fine", "fine", "fails", "cancelled", "again"])
                if part[-1].number <= done:
                    fate = "fine"
                with trio.move_on_after(0.01 if fate == "cancelled" else 60) as scope:
                    try:
                        await listener(part if lists else part[0])
                    except (ValueError, Retry):
                        break
                if scope.cancelled_caught:
                    break
                done = max(done, part[-1].number)
        assert effects(path) == list(range(1, done + 1))

    trio.run(story)


def test_a_listener_that_waits_in_its_transaction_keeps_those_of_other_partitions_waiting_and_not_the_loop(
    path: Path,
) -> None:
    begun, go, turns = trio.Event(), trio.Event(), 0

    async def handler(given: Any, connection: sqlite3.Connection) -> None:
        handle(given, connection)
        begun.set()
        await go.wait()

    async def story() -> None:
        nonlocal turns
        listener = made("positions", path, handler)
        async with trio.open_nursery() as nursery:
            for partition in range(4):
                nursery.start_soon(listener, message(partition + 1, partition))
            await begun.wait()
            for _ in range(50):
                await trio.lowlevel.checkpoint()
                turns += 1
            assert effects_of_others(path) == []
            go.set()
        assert sorted(effects(path)) == [1, 2, 3, 4]

    trio.run(story)
    assert turns == 50


def effects_of_others(path: Path) -> list[Any]:
    """What somebody sees who only reads."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT id FROM effects").fetchall()
    finally:
        connection.close()


def test_what_another_subscriber_has_handled_meanwhile_is_skipped(path: Path) -> None:
    async def handler(given: Any, connection: sqlite3.Connection) -> None:
        handle(given, connection)

    async def story() -> None:
        here, there = made("positions", path, handler), made("positions", path, handler)
        await here(message(1))
        await there([message(1), message(2), message(3)])
        await here(message(2))
        exactly_once(SQLitePositions(path, "billing"))(handle)([message(3), message(4)])  # and a sync one of the name
        await here([message(4), message(5)])

    trio.run(story)
    assert effects(path) == [1, 2, 3, 4, 5]


class Refusing:
    """A store whose position others keep moving."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await trio.lowlevel.checkpoint()
        yield

    async def load(self, queue: str, partition: int) -> int:
        return 0

    async def commit(self, connection: None, queue: str, partition: int, before: int, position: int) -> bool:
        return False


async def ignore(given: Any, connection: object) -> None: ...


def test_a_position_that_others_keep_moving_is_given_up() -> None:
    with pytest.raises(BadVersion):
        trio.run(exactly_once(Refusing())(ignore), message(1))


def test_what_an_async_listener_needs_of_its_subscription_is_checked(path: Path) -> None:
    one = check_listener(made("positions", path, ignore), "message")
    assert one.is_async
    assert check_effects([one], record(RetryPolicy()))
    with pytest.raises(InvalidRequest, match="use idempotent"):
        check_effects([one], record(RetryPolicy(order="key")))
    with pytest.raises(InvalidRequest, match="by hand"):
        check_effects([one], record(RetryPolicy()), manual=True)
    with pytest.raises(InvalidRequest, match="share a store"):
        check_effects([one, one], record(RetryPolicy()))
