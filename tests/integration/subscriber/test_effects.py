"""Effects exactly once with real processes: subscribers that are killed inside and right behind their transactions."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from delivery import Client, NewMessage
from delivery.errors import InvalidRequest
from subscriber import Message, RetryPolicy, Subscriber
from subscriber.effects import exactly_once
from subscriber.sqlite import SQLitePositions
from tests.integration.effecting import Orders
from tests.integration.embedded import eventually
from tests.integration.engine import Engine, SubscriberProcess

pytestmark = pytest.mark.integration

NAME = "ledger"


CREATE = "CREATE TABLE effects (partition int, id bigint)"
Select = Callable[[], Counter[tuple[int, int]]]
"""How often each message has its effect."""


def in_sqlite(path: Path) -> Select:
    """Makes the database."""

    def select() -> Counter[tuple[int, int]]:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return Counter(connection.execute("SELECT partition, id FROM effects"))

    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(CREATE)
    return select


def in_postgres(url: str) -> Select:
    """Empties the database."""

    def select() -> Counter[tuple[int, int]]:
        with psycopg.connect(url) as connection:
            return Counter(connection.execute("SELECT partition, id FROM effects").fetchall())

    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS effects, hoot_positions, hoot_seen")
        connection.execute(CREATE)
    return select


def publish(client: Client, queue: str, count: int) -> set[tuple[int, int]]:
    messages = [NewMessage(b"x", key=b"%d" % (number % 7)) for number in range(count)]
    return {(one.partition, int(one.id)) for one in client.queue(queue).put_many(messages)}


@pytest.mark.parametrize(
    ("database", "by"),
    [("sqlite", "positions"), ("awaited sqlite", "seen"), ("postgres", "positions"), ("postgres", "seen")],
)
def test_a_subscriber_that_is_killed_inside_and_behind_its_transactions_has_each_effect_once(
    running: Engine, client: Client, tmp_path: Path, request: pytest.FixtureRequest, database: str, by: str
) -> None:
    """By ids they are handled in lists."""
    queue = f"orders-{database.replace(' ', '-')}-{by}"
    place = request.getfixturevalue("postgres") if database == "postgres" else str(tmp_path / "ledger.db")
    effects = in_postgres(place) if database == "postgres" else in_sqlite(Path(place))
    client.create_queue(queue, partitions=2)
    published = publish(client, queue, 60)
    orders = Orders(running.address, queue, NAME, place, by, lists=by == "seen", awaited="awaited" in database)
    process = SubscriberProcess("tests.integration.effecting", orders)
    try:
        for death in ({"die_before": 1}, {"die_after": 1}, {"die_before": 2}, {"die_after": 2}):
            process.start(**death)
            published |= publish(client, queue, 20)
            eventually(lambda: process.is_dead, f"it dies at {death}", 60)
        process.start()
        eventually(lambda: set(effects()) == published, "all effects are there", 60)
        published |= publish(client, queue, 20)
        eventually(lambda: set(effects()) == published, "these, too", 60)
        assert set(effects().values()) == {1}
    finally:
        process.kill()


def test_with_the_order_of_keys_each_effect_is_there_once_and_none_of_a_message_that_fails(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    database = tmp_path / "ledger.db"
    effects = in_sqlite(database)
    client.create_queue("refunds")
    published = publish(client, "refunds", 70)
    ids = sorted(published)
    poison = ids[8]
    orders = Orders(
        running.address, "refunds", NAME, str(database), by="seen",
        retry=RetryPolicy(order="key", first_seconds=0.5, factor=1),
    )  # fmt: skip
    process = SubscriberProcess("tests.integration.effecting", orders)
    try:
        process.start(poison=poison[1], die_after=20)
        eventually(lambda: process.is_dead, "it dies", 60)
        process.start(poison=poison[1])
        waiting = set(ids[8::7])
        eventually(lambda: set(effects()) == published - waiting, "all but the poison's key", 60)
        process.start(die_before=3)
        eventually(lambda: process.is_dead, "it dies again", 60)
        process.start()
        eventually(lambda: set(effects()) == published, "all effects are there", 60)
        assert set(effects().values()) == {1}
    finally:
        process.kill()


def test_positions_are_refused_with_the_order_of_keys_and_while_keys_are_parked(
    running: Engine, client: Client, tmp_path: Path
) -> None:
    client.create_queue("returns")
    publish(client, "returns", 14)
    by_key = RetryPolicy(order="key", first_seconds=3600, longest_seconds=7200)

    def attach(retry: RetryPolicy) -> Subscriber:
        @exactly_once(SQLitePositions(tmp_path / "ledger.db", NAME))
        def listener(message: Message, connection: sqlite3.Connection) -> None: ...

        subscriber = Subscriber(NAME, running.address)
        subscriber.subscribe("returns", start="earliest", retry=retry, listener=listener)
        return subscriber

    with pytest.raises(InvalidRequest, match="use idempotent"):
        attach(by_key).start()
    assert client.subscriptions("returns") == []

    def failing(message: Message) -> None:
        raise ValueError("no")

    other = Subscriber(NAME, running.address)
    other.subscribe("returns", start="earliest", retry=by_key, listener=failing)
    with other:
        eventually(lambda: len(client.parked("returns", NAME)) == 7, "all keys are parked", 60)
    with pytest.raises(InvalidRequest, match="are parked"):
        attach(RetryPolicy()).start()
