"""Effects exactly once: whatever comes again, and wherever a handler breaks off, its writes are there once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from delivery.errors import BadVersion, InvalidRequest
from delivery.metastore.policy import RetryPolicy
from delivery.metastore.records import SubscriptionRecord
from delivery.model import Message
from subscriber import Retry
from subscriber.async_sqlite import AsyncSQLitePositions, AsyncSQLiteSeen
from subscriber.effects import Once, check_effects, exactly_once, idempotent
from subscriber.listeners import check_listener
from subscriber.sqlite import SQLitePositions, SQLiteSeen, SQLiteStore
from tests.strategies import times

Listener = Callable[[Any], object]


def message(number: int, partition: int = 0, queue: str = "q") -> Message:
    return Message(number, b"x", "", None, partition, queue)


def noted(store: SQLiteStore) -> list[int]:
    with store.transaction() as connection:
        return [row[0] for row in connection.execute("SELECT id FROM effects ORDER BY rowid")]


def handle(given: Message | list[Message], connection: sqlite3.Connection) -> None:
    for one in [given] if isinstance(given, Message) else given:
        connection.execute("INSERT INTO effects VALUES (?)", [one.number])


def create(store: SQLiteStore) -> None:
    with store.transaction() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS effects (id INTEGER)")


@pytest.fixture(params=["positions", "seen"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(kind: str, path: Path, name: str = "billing") -> tuple[SQLiteStore, Callable[[Any], Once[Any]]]:
    """A store as a process opens it, and the decorator over it."""
    if kind == "positions":
        positions = SQLitePositions(path, name)
        return positions, exactly_once(positions)
    seen = SQLiteSeen(path, name)
    return seen, idempotent(seen)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


# -- once


class Killed(BaseException):
    """What a handler's process dies of."""


@times(0.5)
@given(
    kind=st.sampled_from(["positions", "seen"]), lists=st.booleans(),
    turns=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 9), st.sampled_from(["fine", "fails", "killed"])), max_size=12
    ),
)  # fmt: skip
def test_whatever_comes_again_and_wherever_it_breaks_off_each_message_has_its_effect_once(
    kind: str, lists: bool, turns: list[tuple[int, int, str]]
) -> None:
    """A turn is a run of the host from behind an acknowledged message, so many messages long, and how it ends."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        store, once = opened(kind, path)
        create(store)
        done, how = 0, "fine"

        def handler(given: Message | list[Message], connection: sqlite3.Connection) -> None:
            handle(given, connection)
            if how != "fine":
                raise Killed if how == "killed" else ValueError("told to fail")

        listener: Listener = once(handler)
        for back, count, end in [*turns, (0, 1, "fine")]:
            run = [message(number) for number in range(max(0, done - back) + 1, done + count + 1)]
            for part in [run] if lists else [[one] for one in run]:
                how = end if part[-1] is run[-1] else "fine"
                try:
                    listener(part if lists else part[0])
                except (Killed, ValueError):
                    break
                done = max(done, part[-1].number)
            if end == "killed":  # another process begins with what is in the file
                store.close()
                store, once = opened(kind, path)
                listener = once(handler)
        assert noted(store) == list(range(1, done + 1))
        store.close()


def test_a_handler_that_says_retry_leaves_nothing_and_is_called_again(kind: str, path: Path) -> None:
    store, once = opened(kind, path)
    create(store)
    answers: Iterator[object] = iter([Retry(), None])

    @once
    def listener(one: Message, connection: sqlite3.Connection) -> object:
        handle(one, connection)
        return next(answers)

    with pytest.raises(Retry):
        listener(message(5))
    assert noted(store) == []
    listener(message(5))
    assert noted(store) == [5]


def test_what_another_subscriber_has_handled_meanwhile_is_skipped(kind: str, path: Path) -> None:
    """One that was taken over from, and does not know it yet."""
    store, once = opened(kind, path)
    _, once_there = opened(kind, path)
    create(store)
    here, there = once(handle), once_there(handle)
    here(message(1))
    there([message(1), message(2), message(3)])
    here(message(2))
    here([message(3), message(4)])
    there(message(4))
    assert noted(store) == [1, 2, 3, 4]


def test_partitions_queues_and_names_are_apart(kind: str, path: Path) -> None:
    store, once = opened(kind, path)
    _, once_there = opened(kind, path, "another")
    create(store)
    for listener in (once(handle), once_there(handle)):
        for one in (message(7), message(7, partition=1), message(7, queue="r"), message(7)):
            listener(one)
    assert noted(store) == [7] * 6


def test_ids_are_handled_in_any_order_by_their_ids(path: Path) -> None:
    store, once = opened("seen", path)
    create(store)
    listener = once(handle)
    for number in (3, 1, 3, 2, 1):
        listener(message(number))
    assert noted(store) == [3, 1, 2]


def test_a_position_that_others_keep_moving_is_given_up_and_nothing_is_handled(path: Path) -> None:
    store, _ = opened("positions", path)
    create(store)
    never = SimpleNamespace(load=lambda *_: 0, transaction=store.transaction, commit=lambda *_: False)
    with pytest.raises(BadVersion):
        exactly_once(never)(handle)(message(1))
    assert noted(store) == []


# -- bounds


def test_ids_are_forgotten_when_there_are_too_many_and_when_they_are_too_old(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("subscriber.sqlite.time.time_ns", lambda: int(now * 1e9))
    monkeypatch.setattr(SQLiteSeen, "FORGET_EVERY", 10)
    seen = SQLiteSeen(path, "billing", keep_seconds=60, keep_ids=20)

    def add(first: int, count: int) -> int:
        nonlocal now
        with seen.transaction() as connection:
            for number in range(first, first + count):
                now += 0.01
                assert seen.add(connection, "q", 0, number)
            return int(connection.execute("SELECT count(*) FROM hoot_seen").fetchone()[0])

    assert add(0, 100) <= 20 + 10
    now += 61
    assert add(100, 10) <= 10
    with seen.transaction() as connection:
        assert not seen.add(connection, "q", 0, 109)


@pytest.mark.parametrize("limits", [{"keep_seconds": 0}, {"keep_ids": 0}, {"keep_seconds": float("nan")}])
def test_limits_that_are_none_are_refused(path: Path, limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        SQLiteSeen(path, "billing", **limits)


# -- what cannot be


def record(retry: RetryPolicy) -> SubscriptionRecord:
    return SubscriptionRecord(
        name="s", queue="q", generation="g", created_ms=1, starts={0: 0}, all_partitions=True, topics=(), retry=retry
    )


def test_positions_need_the_order_of_the_partition_and_ids_do_not(path: Path) -> None:
    by_key, plain = record(RetryPolicy(order="key")), record(RetryPolicy())
    in_order = check_listener(opened("positions", path)[1](handle), "message")
    in_any = check_listener(opened("seen", path)[1](handle), "batch")
    assert check_effects([in_order, in_any], plain)
    assert not check_effects([in_any], by_key)
    with pytest.raises(InvalidRequest, match="use idempotent"):
        check_effects([in_any, in_order], by_key)
    with pytest.raises(InvalidRequest, match="acknowledged by hand"):
        check_effects([in_any], plain, manual=True)


def test_two_listeners_that_share_a_store_are_refused(kind: str, path: Path) -> None:
    """The first would note every message, and the second skip all."""
    _, once = opened(kind, path)
    listeners = [check_listener(once(handle), "message") for _ in range(2)]
    with pytest.raises(InvalidRequest, match="share a store"):
        check_effects(listeners, record(RetryPolicy()))


def test_async_handlers_are_refused(kind: str, path: Path) -> None:
    async def later(one: Message, connection: sqlite3.Connection) -> None: ...

    with pytest.raises(InvalidRequest, match="a sync function"):
        opened(kind, path)[1](later)


def test_async_stores_take_async_handlers_alone(path: Path) -> None:
    for once in (exactly_once(AsyncSQLitePositions(path, "billing")), idempotent(AsyncSQLiteSeen(path, "billing"))):
        with pytest.raises(InvalidRequest, match="an async function"):
            once(handle)  # type: ignore[arg-type]
