"""What an effect exactly once needs of its subscription, its handler and its store. The stores: tests/contracts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery.errors import InvalidRequest
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import SubscriptionRecord
from delivery.model import Message
from subscriber.async_sqlite import AsyncSQLitePositions, AsyncSQLiteSeen
from subscriber.effects import check_effects, exactly_once, idempotent
from subscriber.listeners import check_listener
from tests.effects import SQLiteDatabase, handle, opened


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SQLiteDatabase]:
    with SQLiteDatabase(tmp_path) as made:
        yield made


@pytest.fixture(params=["positions", "seen"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def record(retry: RetryPolicy) -> SubscriptionRecord:
    return SubscriptionRecord(
        name="s", queue="q", generation="g", created_ms=1, starts={0: 0}, all_partitions=True, topics=(), retry=retry
    )


def test_positions_need_the_order_of_the_partition_and_ids_do_not(database: SQLiteDatabase) -> None:
    by_key, plain = record(RetryPolicy(order="key")), record(RetryPolicy())
    in_order = check_listener(opened(database, "positions")[1](handle), "message")
    in_any = check_listener(opened(database, "seen")[1](handle), "batch")
    assert check_effects([in_order, in_any], plain)
    assert not check_effects([in_any], by_key)
    with pytest.raises(InvalidRequest, match="use idempotent"):
        check_effects([in_any, in_order], by_key)
    with pytest.raises(InvalidRequest, match="acknowledged by hand"):
        check_effects([in_any], plain, manual=True)


def test_two_listeners_that_share_a_store_are_refused(kind: str, database: SQLiteDatabase) -> None:
    """The first would note every message, and the second skip all."""
    _, once = opened(database, kind)
    listeners = [check_listener(once(handle), "message") for _ in range(2)]
    with pytest.raises(InvalidRequest, match="share a store"):
        check_effects(listeners, record(RetryPolicy()))


def test_async_handlers_are_refused(kind: str, database: SQLiteDatabase) -> None:
    async def later(one: Message, connection: sqlite3.Connection) -> None: ...

    with pytest.raises(InvalidRequest, match="a sync function"):
        opened(database, kind)[1](later)


def test_async_stores_take_async_handlers_alone(tmp_path: Path) -> None:
    for once in (
        exactly_once(AsyncSQLitePositions(tmp_path / "ledger.db", "billing")),
        idempotent(AsyncSQLiteSeen(tmp_path / "ledger.db", "billing")),
    ):
        with pytest.raises(InvalidRequest, match="an async function"):
            once(handle)  # type: ignore[arg-type]
