"""The contract of stores for effects exactly once, on SQLite and PostgreSQL: what a handler writes is there once,
whatever comes again, and wherever it breaks off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import given, strategies as st

from delivery.errors import BadVersion, InvalidRequest
from delivery.model import Message
from subscriber import Retry
from subscriber.effects import exactly_once
from tests.effects import Database, PostgresDatabase, SQLiteDatabase, handle, message, opened
from tests.strategies import times

Listener = Callable[[Any], object]
Databases = Callable[[], Database]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.integration)])
def databases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    """Gives an empty database each time, which is to be closed."""
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("effects")
        return lambda: SQLiteDatabase(folder)
    url = request.getfixturevalue("postgres")
    return lambda: PostgresDatabase(url)


@pytest.fixture
def database(databases: Databases) -> Iterator[Database]:
    with contextlib.closing(databases()) as made:
        yield made


@pytest.fixture
def postgres_database(postgres: str) -> Iterator[PostgresDatabase]:
    with PostgresDatabase(postgres) as made:
        yield made


@pytest.fixture(params=["positions", "seen"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- once


class Killed(BaseException):
    """What a handler's process dies of."""


@times(0.3)
@given(
    kind=st.sampled_from(["positions", "seen"]), lists=st.booleans(),
    turns=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 9), st.sampled_from(["fine", "fails", "killed"])), max_size=8
    ),
)  # fmt: skip
def test_whatever_comes_again_and_wherever_it_breaks_off_each_message_has_its_effect_once(
    databases: Databases, kind: str, lists: bool, turns: list[tuple[int, int, str]]
) -> None:
    """A turn is a run of the host from behind an acknowledged message, so many messages long, and how it ends."""
    database = databases()
    store, once = opened(database, kind)
    done, how = 0, "fine"

    def handler(given: Message | list[Message], connection: Any) -> None:
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
        if end == "killed":  # another process begins with what is in the database
            store.close()
            store, once = opened(database, kind)
            listener = once(handler)
    assert database.noted() == list(range(1, done + 1))
    database.close()


def test_a_handler_that_says_retry_leaves_nothing_and_is_called_again(database: Database, kind: str) -> None:
    _, once = opened(database, kind)
    answers: Iterator[object] = iter([Retry(), None])

    @once
    def listener(one: Message, connection: Any) -> object:
        handle(one, connection)
        return next(answers)

    with pytest.raises(Retry):
        listener(message(5))
    assert database.noted() == []
    listener(message(5))
    assert database.noted() == [5]


def test_what_another_subscriber_has_handled_meanwhile_is_skipped(database: Database, kind: str) -> None:
    """One that was taken over from, and does not know it yet."""
    here, there = (opened(database, kind)[1](handle) for _ in range(2))
    here(message(1))
    there([message(1), message(2), message(3)])
    here(message(2))
    here([message(3), message(4)])
    there(message(4))
    assert database.noted() == [1, 2, 3, 4]


def test_two_that_handle_the_same_messages_at_once_have_each_effect_once(database: Database, kind: str) -> None:
    listeners = [opened(database, kind)[1](handle) for _ in range(2)]

    def work(listener: Listener) -> None:
        for number in range(1, 41):
            listener(message(number))

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(work, listener) for listener in listeners]:
            done.result()
    assert database.noted() == list(range(1, 41))


def test_partitions_queues_and_names_are_apart(database: Database, kind: str) -> None:
    for name in ("billing", "another"):
        listener = opened(database, kind, name)[1](handle)
        for one in (message(7), message(7, partition=1), message(7, queue="r"), message(7)):
            listener(one)
    assert database.noted() == [7] * 6


def test_ids_are_handled_in_any_order_by_their_ids(database: Database) -> None:
    listener = opened(database, "seen")[1](handle)
    for number in (3, 1, 3, 2, 1):
        listener(message(number))
    assert database.noted() == [3, 1, 2]


def test_a_position_that_others_keep_moving_is_given_up_and_nothing_is_handled(database: Database) -> None:
    store = database.positions()
    never = SimpleNamespace(load=lambda *_: 0, transaction=store.transaction, commit=lambda *_: False)
    with pytest.raises(BadVersion):
        exactly_once(never)(handle)(message(1))
    assert database.noted() == []


def test_a_store_that_was_closed_opens_again_what_it_needs(database: Database, kind: str) -> None:
    store, once = opened(database, kind)
    listener = once(handle)
    listener(message(1))
    store.close()
    listener([message(1), message(2)])
    assert database.noted() == [1, 2]


# -- bounds


def test_ids_are_forgotten_when_there_are_too_many_and_when_they_are_too_old(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("time.time_ns", lambda: int(now * 1e9))
    monkeypatch.setattr("subscriber.forgetting.FORGET_EVERY", 10)
    seen = database.seen(keep_seconds=60, keep_ids=20)

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
def test_limits_that_are_none_are_refused(database: Database, limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        database.seen(**limits)


# -- PostgreSQL's own


@pytest.mark.integration
def test_connections_that_the_server_ended_meanwhile_are_opened_again(
    postgres_database: PostgresDatabase, kind: str
) -> None:
    database = postgres_database
    listener = opened(database, kind)[1](handle)
    listener(message(1))
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    listener([message(1), message(2)])
    assert database.noted() == [1, 2]


@pytest.mark.integration
def test_a_connection_that_ends_within_a_transaction_leaves_nothing_and_the_message_comes_again(
    postgres_database: PostgresDatabase, kind: str
) -> None:
    database = postgres_database
    ends = [True]

    @opened(database, kind)[1]
    def listener(one: Message, connection: Any) -> None:
        handle(one, connection)
        if ends and ends.pop():
            with psycopg.connect(database.url) as other:
                other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])

    with pytest.raises(psycopg.OperationalError):
        listener(message(1))
    assert database.noted() == []
    listener(message(1))
    assert database.noted() == [1]


@pytest.mark.integration
def test_a_listener_that_goes_on_after_a_failed_statement_is_told_that_nothing_stays(
    postgres_database: PostgresDatabase, kind: str
) -> None:
    """PostgreSQL would answer its COMMIT with ROLLBACK, and the message would count as handled."""
    database = postgres_database

    @opened(database, kind)[1]
    def listener(one: Message, connection: Any) -> None:
        handle(one, connection)
        with contextlib.suppress(psycopg.Error):
            connection.execute("SELECT 1/0")

    with pytest.raises(psycopg.errors.InFailedSqlTransaction, match="use a savepoint"):
        listener(message(1))
    assert database.noted() == []
